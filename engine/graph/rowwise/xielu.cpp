#include "engine/graph/rowwise/xielu.h"

#include <fmt/format.h>

#include <algorithm>

#include "cpu/kernels/activation.h"
#include "cpu/kernels/table.h"

namespace kvant::graph {
namespace {

// Columns that a share takes at least: a multiple of 512, so that every array of an ActivationRow
// starts a share on its own cache line.
constexpr int64_t kXieluColumns = 512;

class XieluNode final : public Node {
 public:
  XieluNode(const cpu::KernelTable& kernels, std::string name, const Xielu& xielu, ValueId in,
            const Activations& out)
      : Node(std::move(name), {in}, Writes(in, out)),
        kernels_(kernels),
        sigmoid_(kernels.ForActivation(cpu::Activation::kSigmoid)),
        xielu_(xielu),
        in_(in),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t pieces = Pieces();
    const Range range = OwnedRange(pass.RowCount(in_) * pieces, 1, member.index, member.count);
    for (int64_t piece = range.begin; piece < range.end; ++piece) {
      const int64_t row = piece / pieces;
      const int64_t col = piece % pieces * kXieluColumns;
      const int64_t count = std::min(kXieluColumns, out_.cols - col);
      float* in = pass.FloatRow(in_, row) + col;
      float* out = out_.floats != kNoValue ? pass.FloatRow(out_.floats, row) + col : in;
      Change(in, count, out);
      if (out_.int8 == kNoValue) continue;
      pass.Quantize(kernels_, out, count, {out_.int8, row, out_.cols, col});
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], kValuesPerNumber * out_.cols);
  }
  int64_t UnitsOf(const PassShape& pass) const override { return pass.rows[rows()] * Pieces(); }

  std::string Describe() const override {
    return fmt::format("xielu {} {} {}{} {} [{}]", xielu_.positive, xielu_.negative, xielu_.beta,
                       out_.int8 != kNoValue ? " + quantize int8" : "", kernels_.isa, out_.cols);
  }

 private:
  // One number takes as long as norming this many.
  static constexpr int64_t kValuesPerNumber = 4;

  static std::vector<ValueId> Writes(ValueId in, const Activations& out) {
    std::vector<ValueId> writes = out.ids();
    writes.push_back(in);
    return writes;
  }

  int64_t Pieces() const { return (out_.cols + kXieluColumns - 1) / kXieluColumns; }

  // With s = 1 / (1 + exp(-n)) of n = min(x, 0), exp(n) - 1 is (2 s - 1) / (1 - s), where s is at
  // most a half. out may be x.
  void Change(const float* x, int64_t count, float* out) const {
    float shares[kXieluColumns] = {};
    for (int64_t i = 0; i < count; ++i) shares[i] = std::min(x[i], 0.0f);
    sigmoid_.apply(shares, count, shares);
    const Xielu numbers = xielu_;
    for (int64_t i = 0; i < count; ++i) {
      const float above = std::max(x[i], 0.0f);
      const float below = std::min(x[i], 0.0f);
      const float grown = (2 * shares[i] - 1) / (1 - shares[i]);
      out[i] = numbers.positive * above * above + numbers.negative * (grown - below) +
               numbers.beta * x[i];
    }
  }

  const cpu::KernelTable& kernels_;
  const cpu::ActivationKernel& sigmoid_;
  Xielu xielu_;
  ValueId in_;
  Activations out_;
};

}  // namespace

std::unique_ptr<Node> MakeXielu(const cpu::KernelTable& kernels, std::string name,
                                const Xielu& xielu, ValueId in, const Activations& out) {
  return std::make_unique<XieluNode>(kernels, std::move(name), xielu, in, out);
}

}  // namespace kvant::graph
