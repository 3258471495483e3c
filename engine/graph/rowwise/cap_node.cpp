// values = cap * tanh(values / cap), in place: what keeps the logits of some models in bounds.
#include <algorithm>

#include <fmt/format.h>

#include "cpu/kernels/table.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::graph {
namespace {

// Columns that a share takes at least, so that decoding one row occupies all threads.
constexpr int64_t kColumns = 512;

class CapNode final : public Node {
 public:
  CapNode(const cpu::KernelTable& kernels, std::string name, float cap, ValueId values,
          int64_t cols)
      : Node(std::move(name), {values}, {values}),
        kernels_(kernels),
        cap_(cap),
        values_(values),
        cols_(cols) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t pieces = (cols_ + kColumns - 1) / kColumns;
    const Range range = OwnedRange(pass.RowCount(values_) * pieces, 1, member.index, member.count);
    for (int64_t piece = range.begin; piece < range.end; ++piece) {
      const int64_t col = piece % pieces * kColumns;
      kernels_.cap(pass.FloatRow(values_, piece / pieces) + col, std::min(kColumns, cols_ - col),
                   cap_);
    }
  }

  int64_t UnitsOf(const PassShape& pass) const override {
    return pass.rows[rows()] * ((cols_ + kColumns - 1) / kColumns);
  }
  // Even a single row of logits is too much work for one thread.
  Width WidthOf(const RowCounts& counts) const override {
    return cols_ > kColumns ? Width::kTeam : WidthOfRows(counts[rows()], cols_);
  }

  std::string Describe() const override {
    return fmt::format("within {} {} [{}]", cap_, kernels_.isa, cols_);
  }

 private:
  const cpu::KernelTable& kernels_;
  float cap_;
  ValueId values_;
  int64_t cols_;
};

}  // namespace

std::unique_ptr<Node> MakeCap(const cpu::KernelTable& kernels, std::string name, float cap,
                              ValueId values, int64_t cols) {
  return std::make_unique<CapNode>(kernels, std::move(name), cap, values, cols);
}

}  // namespace kvant::graph
