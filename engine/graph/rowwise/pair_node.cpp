// The node with which a layer that guesses further tokens begins: the row of a token beside the row
// that the model, or the layer itself, has left at the position before.
#include <algorithm>

#include <fmt/format.h>

#include "cpu/kernels/table.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/rowwise_nodes.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {
namespace {

class PairNode final : public Node {
 public:
  PairNode(const cpu::KernelTable& kernels, std::string name, Norm of_token, Norm of_hidden,
           ValueId token, ValueId hidden, ValueId out)
      : Node(std::move(name), ReadsOf(token, hidden), {out}),
        kernels_(kernels),
        of_token_(std::move(of_token)),
        of_hidden_(std::move(of_hidden)),
        token_(token),
        hidden_(hidden),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t cols = of_token_.cols();
    const Range range = OwnedRange(pass.RowCount(out_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* out = pass.FloatRow(out_, row);
      ApplyNorm(kernels_, of_token_, 0, cols, pass.FloatRow(token_, row), out);
      const float* hidden = Before(pass, row);
      if (hidden == nullptr) {
        std::fill_n(out + cols, cols, 0.0f);
      } else {
        ApplyNorm(kernels_, of_hidden_, 0, cols, hidden, out + cols);
      }
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], 2 * of_token_.cols());
  }

  std::string Describe() const override {
    return fmt::format("{} of tokens, {} of rows before {} [2 x {}]", NormName(of_token_.kind),
                       NormName(of_hidden_.kind), kernels_.isa, of_token_.cols());
  }

 private:
  static std::vector<ValueId> ReadsOf(ValueId token, ValueId hidden) {
    if (hidden == kNoValue) return {token};
    return {token, hidden};
  }

  // The row of the position before; null where there is none.
  const float* Before(const PassContext& pass, int64_t row) const {
    const std::span<const kv::PartRows> parts = pass.kv->parts();
    const auto after = std::ranges::upper_bound(parts, row, {}, &kv::PartRows::first_row);
    const auto part = static_cast<size_t>(after - parts.begin()) - 1;
    const int64_t in_part = row - parts[part].first_row;
    if (hidden_ != kNoValue && in_part > 0) return pass.FloatRow(hidden_, row - 1);
    const std::span<const float> given = pass.hidden[part];
    const int64_t begin = hidden_ == kNoValue ? in_part * of_hidden_.cols() : 0;
    return given.empty() ? nullptr : given.data() + begin;
  }

  const cpu::KernelTable& kernels_;
  Norm of_token_;
  Norm of_hidden_;
  ValueId token_;
  ValueId hidden_;
  ValueId out_;
};

}  // namespace

std::unique_ptr<Node> MakePairWithHidden(const cpu::KernelTable& kernels, std::string name,
                                         Norm of_token, Norm of_hidden, ValueId token,
                                         ValueId hidden, ValueId out) {
  return std::make_unique<PairNode>(kernels, std::move(name), std::move(of_token),
                                    std::move(of_hidden), token, hidden, out);
}

}  // namespace kvant::graph
