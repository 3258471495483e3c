// The inputs of the scan of Kimi delta attention: queries and keys of unit length, decays, gains.
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"
#include "cpu/kernels/table.h"
#include "engine/graph/recurrent/delta_norms.h"
#include "engine/graph/recurrent/recurrent_nodes.h"
#include "engine/graph/rowwise/norm.h"

namespace kvant::graph {
namespace {

class KdaGatesNode final : public Node {
 public:
  KdaGatesNode(const cpu::KernelTable& kernels, std::string name, KdaGates gates, ValueId qkv,
               ValueId out)
      : Node(std::move(name), {gates.decays, gates.gains, qkv}, {out, qkv}),
        kernels_(kernels),
        gates_(std::move(gates)),
        qkv_(qkv),
        out_(out),
        norms_(MakeDeltaNorms(gates_.head_dim)) {}

  // A task is a head of a row.
  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range =
        OwnedRange(pass.RowCount(out_) * gates_.heads, 1, member.index, member.count);
    for (int64_t task = range.begin; task < range.end; ++task) {
      RunHead(pass, task / gates_.heads, task % gates_.heads);
    }
  }

  int64_t UnitsOf(const PassShape& pass) const override { return pass.rows[rows()] * gates_.heads; }
  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], kValuesPerNumber * gates_.heads * gates_.head_dim);
  }

  std::string Describe() const override {
    return fmt::format("lengths and {} decays of {} heads of {} {}",
                       gates_.bound < 0 ? "bounded" : "free", gates_.heads, gates_.head_dim,
                       kernels_.isa);
  }

 private:
  // A query's, a key's and a decay's number take as long as norming this many values.
  static constexpr int64_t kValuesPerNumber = 6;

  void RunHead(const PassContext& pass, int64_t row, int64_t head) const {
    const int64_t dim = gates_.head_dim;
    const int64_t keys = gates_.heads * dim;
    float* query = pass.FloatRow(qkv_, row) + head * dim;
    ApplyNorm(kernels_, norms_.query, 0, dim, query, query);
    ApplyNorm(kernels_, norms_.key, 0, dim, query + keys, query + keys);
    float* out = pass.FloatRow(out_, row);
    kernels_.key_decays({.in = pass.FloatRow(gates_.decays, row) + gates_.first_decay + head * dim,
                         .biases = gates_.biases.data() + head * dim,
                         .rate = gates_.rates[static_cast<size_t>(head)],
                         .bound = gates_.bound,
                         .cols = dim,
                         .out = out + head * dim});
    const float gain = pass.FloatRow(gates_.gains, row)[gates_.first_gain + head];
    out[keys + head] = 1.0f / (1.0f + std::exp(-gain));
  }

  const cpu::KernelTable& kernels_;
  KdaGates gates_;
  ValueId qkv_;
  ValueId out_;
  DeltaNorms norms_;
};

}  // namespace

std::unique_ptr<Node> MakeKdaGates(const cpu::KernelTable& kernels, std::string name,
                                   KdaGates gates, ValueId qkv, ValueId out) {
  KVANT_CHECK(std::ssize(gates.rates) == gates.heads);
  return std::make_unique<KdaGatesNode>(kernels, std::move(name), std::move(gates), qkv, out);
}

}  // namespace kvant::graph
