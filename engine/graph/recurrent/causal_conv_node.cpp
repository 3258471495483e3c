// Convolutions over the last rows, and the product of columns that comes before some of them.
#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "cpu/kernels/table.h"
#include "engine/graph/recurrent/part_states.h"
#include "engine/graph/recurrent/recurrent_nodes.h"
#include "engine/limits.h"

namespace kvant::graph {
namespace {

// Pieces have the width that they have in elementwise_nodes.cpp.
constexpr int64_t kConvColumns = 512;

// The row before the first position.
constexpr std::array<float, kConvColumns> kZeroRow = {};

class MultiplyColumnsNode final : public Node {
 public:
  MultiplyColumnsNode(std::string name, ValueId values, int64_t target, int64_t factor,
                      int64_t cols)
      : Node(std::move(name), {values}, {values}),
        values_(values),
        target_(target),
        factor_(factor),
        cols_(cols) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(values_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* target = pass.FloatRow(values_, row) + target_;
      const float* factor = pass.FloatRow(values_, row) + factor_;
      for (int64_t i = 0; i < cols_; ++i) target[i] *= factor[i];
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], cols_);
  }

  std::string Describe() const override { return fmt::format("*= columns [{}]", cols_); }

 private:
  ValueId values_;
  int64_t target_;
  int64_t factor_;
  int64_t cols_;
};

class CausalConvNode final : public Node {
 public:
  CausalConvNode(const cpu::KernelTable& kernels, std::string name, CausalConv conv,
                 StateSlice state, ValueId in, const Activations& out)
      : Node(std::move(name), {in}, out.ids()),
        kernels_(kernels),
        conv_(std::move(conv)),
        state_(state),
        in_(in),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t pieces = (conv_.cols + kConvColumns - 1) / kConvColumns;
    const Range range = OwnedRange(pass.RowCount(in_) * pieces, 1, member.index, member.count);
    PartStates part;
    int64_t number = 0;
    for (int64_t task = range.begin; task < range.end; ++task) {
      const int64_t row = task / pieces;
      while (row >= part.first_row + part.rows) part = PartStatesOf(pass, state_, number++);
      const int64_t col = task % pieces * kConvColumns;
      const int64_t cols = std::min(kConvColumns, conv_.cols - col);
      RunPiece(pass, member, part, {row - part.first_row, col, cols});
    }
    KeepTails(pass, state_, tail_offset(), member, [&](int64_t row, float* kept) {
      std::memcpy(kept, pass.FloatRow(in_, row) + conv_.first, RowBytes());
    });
  }

  int64_t TailFloats() const override { return conv_.cols; }

  // The state is the last rows; some may lie before the rows of the log.
  void ScanAgain(const PassContext& pass, const TailRange& range,
                 const ThreadPool::Member& member) const override {
    const PartStates part = PartStatesOf(pass, state_, 0);
    const Range kept = OwnedRange(conv_.history(), 1, member.index, member.count);
    for (int64_t i = kept.begin; i < kept.end; ++i) {
      const int64_t position = range.end - conv_.history() + i;
      float* after = part.after + i * conv_.cols;
      if (position >= range.begin) {
        std::memcpy(after, range.tail.Row(position) + tail_offset(), RowBytes());
      } else if (part.before != nullptr) {
        const int64_t row = conv_.history() + position - range.begin;
        std::memcpy(after, part.before + row * conv_.cols, RowBytes());
      } else {
        std::memset(after, 0, RowBytes());
      }
    }
  }

  size_t ScratchBytes(const PassLimits&) const override {
    return static_cast<size_t>(kConvColumns) * sizeof(float);
  }

  int64_t UnitsOf(const PassShape& pass) const override {
    return pass.rows[rows()] * ((conv_.cols + kConvColumns - 1) / kConvColumns);
  }
  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], (conv_.taps + 4) * conv_.cols);
  }

  void AddWork(const PassShape& pass, Work& work) const override {
    work.cache_bytes += static_cast<double>(pass.parts.size()) *
                        static_cast<double>(conv_.state_floats()) * sizeof(float);
    work.float_macs += static_cast<double>(pass.rows[RowSpace::kPass]) *
                       static_cast<double>(conv_.taps * conv_.cols);
  }

  std::string Describe() const override {
    return fmt::format("convolution over {} rows{}{}{} {} [{}]", conv_.taps,
                       conv_.dilation > 1 ? fmt::format(", {} apart", conv_.dilation) : "",
                       conv_.activation.has_value()
                           ? fmt::format(" + {}", kernels_.ForActivation(*conv_.activation).name)
                           : "",
                       out_.int8 != kNoValue ? " + quantize int8" : "", kernels_.isa, conv_.cols);
  }

 private:
  // A row of a part, counted from its first, and the columns [col, col + cols).
  struct Piece {
    int64_t row;
    int64_t col;
    int64_t cols;
  };

  size_t RowBytes() const { return static_cast<size_t>(conv_.cols) * sizeof(float); }

  // The inputs of row `row` of the part, which may lie before or behind it.
  const float* Input(const PassContext& pass, const PartStates& part, int64_t row,
                     int64_t col) const {
    const bool within = row >= 0 && row < part.rows;
    if (within) return pass.FloatRow(in_, part.first_row + row) + conv_.first + col;
    if (part.before == nullptr || row >= 0) return kZeroRow.data();
    return part.before + (conv_.history() + row) * conv_.cols + col;
  }

  void RunPiece(const PassContext& pass, const ThreadPool::Member& member, const PartStates& part,
                const Piece& piece) const {
    std::array<const float*, kConvTapsMax> rows;
    for (int64_t tap = 0; tap < conv_.taps; ++tap) {
      rows[static_cast<size_t>(tap)] = Input(
          pass, part, piece.row - conv_.history() + conv_.ahead + tap * conv_.dilation, piece.col);
    }
    const int64_t row = part.first_row + piece.row;
    float* out = out_.floats != kNoValue ? pass.FloatRow(out_.floats, row) + piece.col
                                         : reinterpret_cast<float*>(pass.Scratch(member).data());
    kernels_.causal_conv({.rows = rows.data(),
                          .weights = conv_.weights.data() + piece.col,
                          .weight_stride = conv_.cols,
                          .bias = conv_.bias.empty() ? nullptr : conv_.bias.data() + piece.col,
                          .taps = conv_.taps,
                          .cols = piece.cols,
                          .out = out});
    if (conv_.activation.has_value()) {
      kernels_.ForActivation(*conv_.activation).apply(out, piece.cols, out);
    }
    if (conv_.gate != CausalConv::kNoGate) {
      const float* gate = pass.FloatRow(in_, row) + conv_.gate + piece.col;
      for (int64_t i = 0; i < piece.cols; ++i) out[i] *= gate[i];
    }
    if (out_.int8 != kNoValue) {
      pass.Quantize(kernels_, out, piece.cols, {out_.int8, row, out_.cols, piece.col});
    }
    if (piece.row + 1 == part.rows && part.after != nullptr) Keep(pass, part, piece);
  }

  // The inputs of the part's last rows, and of rows before it where it has less.
  void Keep(const PassContext& pass, const PartStates& part, const Piece& piece) const {
    for (int64_t i = 0; i < conv_.history(); ++i) {
      const int64_t row = part.rows - conv_.history() + i;
      std::memcpy(part.after + i * conv_.cols + piece.col, Input(pass, part, row, piece.col),
                  static_cast<size_t>(piece.cols) * sizeof(float));
    }
  }

  const cpu::KernelTable& kernels_;
  CausalConv conv_;
  StateSlice state_;
  ValueId in_;
  Activations out_;
};

}  // namespace

std::unique_ptr<Node> MakeMultiplyColumns(std::string name, ValueId values, int64_t target,
                                          int64_t factor, int64_t cols) {
  return std::make_unique<MultiplyColumnsNode>(std::move(name), values, target, factor, cols);
}

std::unique_ptr<Node> MakeCausalConv(const cpu::KernelTable& kernels, std::string name,
                                     CausalConv conv, StateSlice state, ValueId in,
                                     const Activations& out) {
  KVANT_CHECK(conv.taps <= kConvTapsMax && out.floats != in);
  return std::make_unique<CausalConvNode>(kernels, std::move(name), std::move(conv), state, in,
                                          out);
}

}  // namespace kvant::graph
