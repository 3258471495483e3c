// Nodes that gather what convolutions over three neighbouring rows read, so that the convolutions
// are products with matrices [3 * columns x rows], in any format. The order of columns is that of
// the weights in Hugging Face's folders, the three neighbours of a number side by side.
#include <algorithm>

#include <fmt/format.h>

#include "engine/graph/plan.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::graph {
namespace {

constexpr int64_t kTaps = 3;

class GatherTapsNode final : public Node {
 public:
  GatherTapsNode(std::string name, ValueId in, int64_t cols, int64_t stride, ValueId out)
      : Node(std::move(name), {in}, {out}), in_(in), cols_(cols), stride_(stride), out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t rows = pass.RowCount(in_);
    const Range range = OwnedRange(pass.RowCount(out_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* out = pass.FloatRow(out_, row);
      for (int64_t tap = 0; tap < kTaps; ++tap) {
        const int64_t source = stride_ * row + tap - 1;
        const bool inside = source >= 0 && source < rows;
        const float* in = inside ? pass.FloatRow(in_, source) : nullptr;
        for (int64_t col = 0; col < cols_; ++col) {
          out[kTaps * col + tap] = inside ? in[col] : 0.0f;
        }
      }
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], kTaps * cols_);
  }

  std::string Describe() const override {
    return fmt::format("three neighbours of every {} [{}]", stride_ == 1 ? "row" : "second row",
                       kTaps * cols_);
  }

 private:
  ValueId in_;
  int64_t cols_;
  int64_t stride_;
  ValueId out_;
};

// Frames lie column by column, so the neighbours of a number lie side by side.
class GatherFramesNode final : public Node {
 public:
  GatherFramesNode(std::string name, int64_t cols, ValueId out)
      : Node(std::move(name), {}, {out}), cols_(cols), out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t frames = pass.RowCount(out_);
    const Range range = OwnedRange(frames, 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* out = pass.FloatRow(out_, row);
      for (int64_t col = 0; col < cols_; ++col) {
        const float* series = pass.frames.data() + col * frames;
        for (int64_t tap = 0; tap < kTaps; ++tap) {
          const int64_t frame = row + tap - 1;
          *out++ = frame >= 0 && frame < frames ? series[frame] : 0.0f;
        }
      }
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], kTaps * cols_);
  }

  std::string Describe() const override {
    return fmt::format("three neighbouring frames [{}]", kTaps * cols_);
  }

 private:
  int64_t cols_;
  ValueId out_;
};

}  // namespace

std::unique_ptr<Node> MakeGatherTaps(std::string name, ValueId in, int64_t cols, int64_t stride,
                                     ValueId out) {
  return std::make_unique<GatherTapsNode>(std::move(name), in, cols, stride, out);
}

std::unique_ptr<Node> MakeGatherFrames(std::string name, int64_t cols, ValueId out) {
  return std::make_unique<GatherFramesNode>(std::move(name), cols, out);
}

}  // namespace kvant::graph
