// Nodes that norm rows: into what products read, in place and piece by piece, and on the way into
// another value.
#include "engine/graph/rowwise/norm.h"

#include <fmt/format.h>

#include "base/check.h"
#include "cpu/kernels/table.h"
#include "engine/graph/activations.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::graph {
namespace {

class NormNode final : public Node {
 public:
  NormNode(const cpu::KernelTable& kernels, std::string name, Norm norm, ValueId in,
           const Activations& out)
      : Node(std::move(name), {in}, out.ids()),
        kernels_(kernels),
        norm_(std::move(norm)),
        in_(in),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t cols = out_.cols;
    const Range range = OwnedRange(pass.RowCount(in_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* normed = out_.floats != kNoValue
                          ? pass.FloatRow(out_.floats, row)
                          : reinterpret_cast<float*>(pass.Scratch(member).data());
      ApplyNorm(kernels_, norm_, 0, cols, pass.FloatRow(in_, row), normed);
      if (out_.int8 != kNoValue) pass.Quantize(kernels_, normed, cols, {out_.int8, row, cols, 0});
    }
  }

  size_t ScratchBytes(const PassLimits&) const override {
    return out_.floats == kNoValue ? static_cast<size_t>(out_.cols) * sizeof(float) : 0;
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], out_.cols);
  }

  std::string Describe() const override {
    return fmt::format("{}{} {} [{}]", NormName(norm_.kind),
                       out_.int8 != kNoValue ? " + quantize int8" : "", kernels_.isa, out_.cols);
  }

 private:
  const cpu::KernelTable& kernels_;
  Norm norm_;
  ValueId in_;
  Activations out_;
};

class AddNormNode final : public Node {
 public:
  AddNormNode(const cpu::KernelTable& kernels, std::string name, Norm norm, int64_t cols,
              float scale, ValueId in, ValueId out)
      : Node(std::move(name), {in, out}, {in, out}),
        kernels_(kernels),
        norm_(std::move(norm)),
        cols_(cols),
        scale_(scale),
        in_(in),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(in_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* normed = pass.FloatRow(in_, row);
      float* out = pass.FloatRow(out_, row);
      ApplyNorm(kernels_, norm_, 0, cols_, normed, normed);
      if (scale_ != 1.0f) {
        for (int64_t i = 0; i < cols_; ++i) normed[i] *= scale_;
      }
      kernels_.add(out, normed, cols_, out);
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], cols_);
  }

  std::string Describe() const override {
    return fmt::format("+= {}{} {} [{}]", scale_ == 1.0f ? "" : fmt::format("{} * ", scale_),
                       NormName(norm_.kind), kernels_.isa, cols_);
  }

 private:
  const cpu::KernelTable& kernels_;
  Norm norm_;
  int64_t cols_;
  float scale_;
  ValueId in_;
  ValueId out_;
};

class NormPiecesNode final : public Node {
 public:
  NormPiecesNode(const cpu::KernelTable& kernels, std::string name, Norm norm, int64_t first,
                 int64_t pieces, ValueId values)
      : Node(std::move(name), {values}, {values}),
        kernels_(kernels),
        norm_(std::move(norm)),
        first_(first),
        pieces_(pieces),
        values_(values) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t cols = norm_.cols() / pieces_;
    const Range range = OwnedRange(pass.RowCount(values_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* values = pass.FloatRow(values_, row) + first_;
      for (int64_t piece = 0; piece < pieces_; ++piece) {
        float* vector = values + piece * cols;
        ApplyNorm(kernels_, norm_, piece * cols, cols, vector, vector);
      }
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], norm_.cols());
  }

  std::string Describe() const override {
    return fmt::format("{} {} [{} x {}]", NormName(norm_.kind), kernels_.isa,
                       norm_.cols() / pieces_, pieces_);
  }

 private:
  const cpu::KernelTable& kernels_;
  Norm norm_;
  int64_t first_;
  int64_t pieces_;
  ValueId values_;
};

}  // namespace

std::unique_ptr<Node> MakeNorm(const cpu::KernelTable& kernels, std::string name, Norm norm,
                               ValueId in, const Activations& out) {
  return std::make_unique<NormNode>(kernels, std::move(name), std::move(norm), in, out);
}

std::unique_ptr<Node> MakeAddNorm(const cpu::KernelTable& kernels, std::string name, Norm norm,
                                  int64_t cols, float scale, ValueId in, ValueId out) {
  return std::make_unique<AddNormNode>(kernels, std::move(name), std::move(norm), cols, scale, in,
                                       out);
}

std::unique_ptr<Node> MakeNormPieces(const cpu::KernelTable& kernels, std::string name, Norm norm,
                                     int64_t first, int64_t pieces, ValueId values) {
  KVANT_CHECK(pieces > 0 && norm.cols() % pieces == 0);
  return std::make_unique<NormPiecesNode>(kernels, std::move(name), std::move(norm), first, pieces,
                                          values);
}

}  // namespace kvant::graph
