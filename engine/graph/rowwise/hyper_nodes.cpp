#include "engine/graph/rowwise/hyper_nodes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"
#include "cpu/kernels/table.h"

namespace kvant::graph {
namespace {

class RepeatStreamsNode final : public Node {
 public:
  RepeatStreamsNode(const StreamShape& shape, ValueId x, ValueId streams)
      : Node("repeat_streams", {x}, {streams}), shape_(shape), x_(x), streams_(streams) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(x_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* stream = pass.FloatRow(streams_, row);
      for (int64_t i = 0; i < shape_.count; ++i) {
        stream = std::copy_n(pass.FloatRow(x_, row), shape_.dim, stream);
      }
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], shape_.columns());
  }

  std::string Describe() const override {
    return fmt::format("{} equal streams [{}]", shape_.count, shape_.dim);
  }

 private:
  StreamShape shape_;
  ValueId x_;
  ValueId streams_;
};

class NormOfPiecesNode final : public Node {
 public:
  NormOfPiecesNode(const cpu::KernelTable& kernels, std::string name, Norm norm, int64_t pieces,
                   ValueId in, const Activations& out)
      : Node(std::move(name), {in}, out.ids()),
        kernels_(kernels),
        norm_(std::move(norm)),
        pieces_(pieces),
        in_(in),
        out_(out) {
    KVANT_CHECK(out.floats != kNoValue && norm_.cols() == out.cols);
  }

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t cols = out_.cols / pieces_;
    const Range range = OwnedRange(pass.RowCount(in_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      const float* in = pass.FloatRow(in_, row);
      float* normed = pass.FloatRow(out_.floats, row);
      for (int64_t first = 0; first < out_.cols; first += cols) {
        ApplyNorm(kernels_, norm_, first, cols, in + first, normed + first);
      }
      if (out_.int8 == kNoValue) continue;
      pass.Quantize(kernels_, normed, out_.cols, {out_.int8, row, out_.cols, 0});
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], out_.cols);
  }

  std::string Describe() const override {
    return fmt::format("{}{} {} [{} x {}]", NormName(norm_.kind),
                       out_.int8 != kNoValue ? " + quantize int8" : "", kernels_.isa,
                       out_.cols / pieces_, pieces_);
  }

 private:
  const cpu::KernelTable& kernels_;
  Norm norm_;
  int64_t pieces_;
  ValueId in_;
  Activations out_;
};

class MixStreamsNode final : public Node {
 public:
  MixStreamsNode(const cpu::KernelTable& kernels, std::string name, const StreamShape& shape,
                 ValueId gates, ValueId normed, ValueId x)
      : Node(std::move(name), {gates, normed}, {gates, x}),
        kernels_(kernels),
        sigmoid_(kernels.ForActivation(cpu::Activation::kSigmoid)),
        shape_(shape),
        gates_(gates),
        normed_(normed),
        x_(x) {}

  // A task is some columns of a row, of all streams.
  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t pieces = PiecesOfRow();
    const Range range = OwnedRange(pass.RowCount(x_) * pieces, 1, member.index, member.count);
    for (int64_t task = range.begin; task < range.end; ++task) {
      const int64_t row = task / pieces;
      const int64_t col = task % pieces * kMixColumns;
      const int64_t cols = std::min(kMixColumns, shape_.dim - col);
      float* gates = pass.FloatRow(gates_, row) + col;
      const float* normed = pass.FloatRow(normed_, row) + col;
      float* x = pass.FloatRow(x_, row) + col;
      sigmoid_.multiply(gates, normed, cols, x);
      for (int64_t i = 1; i < shape_.count; ++i) {
        float* product = gates + i * shape_.dim;
        sigmoid_.multiply(product, normed + i * shape_.dim, cols, product);
        kernels_.add(x, product, cols, x);
      }
      const float share = 1.0f / static_cast<float>(shape_.count);
      for (int64_t d = 0; d < cols; ++d) x[d] *= share;
    }
  }

  int64_t UnitsOf(const PassShape& pass) const override {
    return pass.rows[rows()] * PiecesOfRow();
  }
  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], kValuesPerSigmoid * shape_.columns());
  }

  std::string Describe() const override {
    return fmt::format("mean of {} streams * sigmoid {} [{}]", shape_.count, kernels_.isa,
                       shape_.dim);
  }

 private:
  // Pieces have the width that they have in elementwise_nodes.cpp.
  static constexpr int64_t kMixColumns = 512;
  // A sigmoid takes as long as norming this many values.
  static constexpr int64_t kValuesPerSigmoid = 4;

  int64_t PiecesOfRow() const { return (shape_.dim + kMixColumns - 1) / kMixColumns; }

  const cpu::KernelTable& kernels_;
  const cpu::ActivationKernel& sigmoid_;
  StreamShape shape_;
  ValueId gates_;
  ValueId normed_;
  ValueId x_;
};

class InjectNode final : public Node {
 public:
  InjectNode(std::string name, const StreamShape& shape, ValueId shares, int64_t first, ValueId in,
             ValueId streams)
      : Node(std::move(name), {shares, in, streams}, {streams}),
        shape_(shape),
        shares_(shares),
        first_(first),
        in_(in),
        streams_(streams) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(in_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      const float* shares = pass.FloatRow(shares_, row) + first_;
      const float* in = pass.FloatRow(in_, row);
      float* stream = pass.FloatRow(streams_, row);
      for (int64_t i = 0; i < shape_.count; ++i, stream += shape_.dim) {
        const float share = 2.0f / (1.0f + std::exp(-shares[i]));
        for (int64_t d = 0; d < shape_.dim; ++d) stream[d] += share * in[d];
      }
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], shape_.columns());
  }

  std::string Describe() const override {
    return fmt::format("{} streams += 2 * sigmoid * [{}]", shape_.count, shape_.dim);
  }

 private:
  StreamShape shape_;
  ValueId shares_;
  int64_t first_;
  ValueId in_;
  ValueId streams_;
};

}  // namespace

std::unique_ptr<Node> MakeRepeatStreams(const StreamShape& shape, ValueId x, ValueId streams) {
  return std::make_unique<RepeatStreamsNode>(shape, x, streams);
}

std::unique_ptr<Node> MakeNormOfPieces(const cpu::KernelTable& kernels, std::string name, Norm norm,
                                       int64_t pieces, ValueId in, const Activations& out) {
  return std::make_unique<NormOfPiecesNode>(kernels, std::move(name), std::move(norm), pieces, in,
                                            out);
}

std::unique_ptr<Node> MakeMixStreams(const cpu::KernelTable& kernels, std::string name,
                                     const StreamShape& shape, ValueId gates, ValueId normed,
                                     ValueId x) {
  return std::make_unique<MixStreamsNode>(kernels, std::move(name), shape, gates, normed, x);
}

std::unique_ptr<Node> MakeInjectIntoStreams(std::string name, const StreamShape& shape,
                                            ValueId shares, int64_t first, ValueId in,
                                            ValueId streams) {
  return std::make_unique<InjectNode>(std::move(name), shape, shares, first, in, streams);
}

}  // namespace kvant::graph
