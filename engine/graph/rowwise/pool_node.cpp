#include "engine/graph/rowwise/pool_node.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/check.h"

namespace kvant::graph {
namespace {

// Columns whose sums a thread holds at once.
constexpr int64_t kPooledColumns = 256;

class PoolNode final : public Node {
 public:
  PoolNode(Pooling pooling, ValueId in, ValueId out, int64_t cols)
      : Node("pool", {in}, {out}), pooling_(pooling), in_(in), out_(out), cols_(cols) {
    KVANT_CHECK(pooling == Pooling::kMean || pooling == Pooling::kCls || pooling == Pooling::kLast);
  }

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t pieces = (cols_ + kPooledColumns - 1) / kPooledColumns;
    const Range range = OwnedRange(pass.RowCount(out_) * pieces, 1, member.index, member.count);
    for (int64_t piece = range.begin; piece < range.end; ++piece) {
      const int64_t row = piece / pieces;
      const TextRows& text = pass.texts[static_cast<size_t>(pass.head[static_cast<size_t>(row)])];
      const int64_t first = piece % pieces * kPooledColumns;
      PoolColumns(pass, text, first, std::min(kPooledColumns, cols_ - first),
                  pass.FloatRow(out_, row) + first);
    }
  }

  std::string Describe() const override {
    return fmt::format("{} of a text's rows [{}]", PoolingName(pooling_), cols_);
  }

 private:
  void PoolColumns(const PassContext& pass, const TextRows& text, int64_t first, int64_t count,
                   float* out) const {
    if (pooling_ != Pooling::kMean) {
      const int64_t row = pooling_ == Pooling::kCls ? 0 : text.rows - 1;
      std::copy_n(pass.FloatRow(in_, text.first_row + row) + first, count, out);
      return;
    }
    std::array<double, kPooledColumns> sums = {};
    for (int64_t row = text.first_row; row < text.first_row + text.rows; ++row) {
      const float* values = pass.FloatRow(in_, row) + first;
      for (int64_t i = 0; i < count; ++i)
        sums[static_cast<size_t>(i)] += static_cast<double>(values[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<float>(sums[static_cast<size_t>(i)] / static_cast<double>(text.rows));
    }
  }

  Pooling pooling_;
  ValueId in_;
  ValueId out_;
  int64_t cols_;
};

}  // namespace

std::unique_ptr<Node> MakePool(Pooling pooling, ValueId in, ValueId out, int64_t cols) {
  return std::make_unique<PoolNode>(pooling, in, out, cols);
}

}  // namespace kvant::graph
