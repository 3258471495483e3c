// Nodes that change every number of a row by itself: activations, scales, bounds, learned
// positions. The plain loops are so simple that the compiler makes vectors of them.
#include <algorithm>

#include <fmt/format.h>

#include "cpu/kernels/activation.h"
#include "cpu/kernels/table.h"
#include "engine/graph/activations.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/rowwise_nodes.h"
#include "formats/gguf.h"

namespace kvant::graph {
namespace {

// Columns that a share takes at least, so that decoding one row occupies all threads. A multiple of
// 512, so that every array of an ActivationRow starts a share on its own cache line.
constexpr int64_t kElementColumns = 512;

// Pieces of a row.
int64_t PiecesOf(int64_t cols) { return (cols + kElementColumns - 1) / kElementColumns; }

// Calls change(row, first column, columns) for the pieces of rows that a member owns.
template <class Change>
void ForEachPiece(int64_t rows, int64_t cols, const ThreadPool::Member& member,
                  const Change& change) {
  const int64_t pieces = PiecesOf(cols);
  const Range range = OwnedRange(rows * pieces, 1, member.index, member.count);
  for (int64_t piece = range.begin; piece < range.end; ++piece) {
    const int64_t col = piece % pieces * kElementColumns;
    change(piece / pieces, col, std::min(kElementColumns, cols - col));
  }
}

class ActivateNode final : public Node {
 public:
  ActivateNode(const cpu::KernelTable& kernels, std::string name, cpu::Activation activation,
               ValueId in, const Activations& out)
      : Node(std::move(name), {in}, Writes(in, out)),
        kernels_(kernels),
        activation_(kernels.ForActivation(activation)),
        in_(in),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    ForEachPiece(
        pass.RowCount(in_), out_.cols, member, [&](int64_t row, int64_t col, int64_t count) {
          float* in = pass.FloatRow(in_, row) + col;
          float* out = out_.floats != kNoValue ? pass.FloatRow(out_.floats, row) + col : in;
          activation_.apply(in, count, out);
          if (out_.int8 == kNoValue) return;
          pass.Quantize(kernels_, out, count, {out_.int8, row, out_.cols, col});
        });
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], kValuesPerActivation * out_.cols);
  }
  int64_t UnitsOf(const PassShape& pass) const override {
    return pass.rows[rows()] * PiecesOf(out_.cols);
  }

  std::string Describe() const override {
    return fmt::format("{}{} {} [{}]", activation_.name,
                       out_.int8 != kNoValue ? " + quantize int8" : "", kernels_.isa, out_.cols);
  }

 private:
  // One activation takes as long as norming this many values.
  static constexpr int64_t kValuesPerActivation = 4;

  static std::vector<ValueId> Writes(ValueId in, const Activations& out) {
    std::vector<ValueId> writes = out.ids();
    writes.push_back(in);
    return writes;
  }

  const cpu::KernelTable& kernels_;
  const cpu::ActivationKernel& activation_;
  ValueId in_;
  Activations out_;
};

// Changes each number of a value by a rule.
template <class Rule>
class ChangeNode final : public Node {
 public:
  ChangeNode(std::string name, Rule rule, ValueId values, int64_t cols)
      : Node(std::move(name), {values}, {values}), rule_(rule), values_(values), cols_(cols) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    ForEachPiece(pass.RowCount(values_), cols_, member,
                 [&](int64_t row, int64_t col, int64_t count) {
                   float* values = pass.FloatRow(values_, row) + col;
                   for (int64_t i = 0; i < count; ++i) values[i] = rule_(values[i]);
                 });
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], cols_);
  }
  int64_t UnitsOf(const PassShape& pass) const override {
    return pass.rows[rows()] * PiecesOf(cols_);
  }

  std::string Describe() const override { return fmt::format("{} [{}]", rule_.Describe(), cols_); }

 private:
  Rule rule_;
  ValueId values_;
  int64_t cols_;
};

struct ScaleRule {
  float factor;
  float operator()(float value) const { return factor * value; }
  std::string Describe() const { return fmt::format("* {}", factor); }
};

struct ClampRule {
  float limit;
  float operator()(float value) const { return std::clamp(value, -limit, limit); }
  std::string Describe() const { return fmt::format("clamp to {}", limit); }
};

// Numbers that count the rows of a learned table.
enum class LearnedBy : uint8_t { kPosition, kSegment };

class AddLearnedRowsNode final : public Node {
 public:
  AddLearnedRowsNode(LearnedBy by, const formats::GgufTensor& table, ValueId out)
      : Node(by == LearnedBy::kPosition ? "add_positions" : "add_token_types", {out}, {out}),
        by_(by),
        table_(table),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t cols = table_.dims[0];
    const Range range = OwnedRange(pass.RowCount(out_), 1, member.index, member.count);
    float* learned = reinterpret_cast<float*>(pass.Scratch(member).data());
    for (int64_t row = range.begin; row < range.end; ++row) {
      table_.format->decode(
          table_.data + NumberOf(pass, static_cast<size_t>(row)) * table_.row_bytes(), learned,
          cols);
      float* out = pass.FloatRow(out_, row);
      for (int64_t i = 0; i < cols; ++i) out[i] += learned[i];
    }
  }

  size_t ScratchBytes(const PassLimits&) const override {
    return static_cast<size_t>(table_.dims[0]) * sizeof(float);
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], table_.dims[0]);
  }

  std::string Describe() const override {
    return fmt::format("+= rows of {} {} [{} x {}]", table_.name, table_.format->name,
                       table_.dims[0], table_.dims[1]);
  }

 private:
  int64_t NumberOf(const PassContext& pass, size_t row) const {
    if (by_ == LearnedBy::kPosition) return pass.positions[row];
    return pass.token_types.empty() ? 0 : pass.token_types[row];
  }

  LearnedBy by_;
  const formats::GgufTensor& table_;
  ValueId out_;
};

class AddVectorNode final : public Node {
 public:
  AddVectorNode(std::string name, std::vector<float> vector, ValueId out)
      : Node(std::move(name), {out}, {out}), vector_(std::move(vector)), out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(out_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* out = pass.FloatRow(out_, row);
      for (size_t i = 0; i < vector_.size(); ++i) out[i] += vector_[i];
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], std::ssize(vector_));
  }

  std::string Describe() const override { return fmt::format("+= {} values", vector_.size()); }

 private:
  std::vector<float> vector_;
  ValueId out_;
};

}  // namespace

std::unique_ptr<Node> MakeActivate(const cpu::KernelTable& kernels, std::string name,
                                   cpu::Activation activation, ValueId in, const Activations& out) {
  return std::make_unique<ActivateNode>(kernels, std::move(name), activation, in, out);
}

std::unique_ptr<Node> MakeScale(std::string name, float factor, ValueId values, int64_t cols) {
  return std::make_unique<ChangeNode<ScaleRule>>(std::move(name), ScaleRule{factor}, values, cols);
}

std::unique_ptr<Node> MakeClamp(std::string name, float limit, ValueId values, int64_t cols) {
  return std::make_unique<ChangeNode<ClampRule>>(std::move(name), ClampRule{limit}, values, cols);
}

std::unique_ptr<Node> MakeAddPositions(const formats::GgufTensor& table, ValueId out) {
  return std::make_unique<AddLearnedRowsNode>(LearnedBy::kPosition, table, out);
}

std::unique_ptr<Node> MakeAddVector(std::string name, std::vector<float> vector, ValueId out) {
  return std::make_unique<AddVectorNode>(std::move(name), std::move(vector), out);
}

std::unique_ptr<Node> MakeAddTokenTypes(const formats::GgufTensor& table, ValueId out) {
  return std::make_unique<AddLearnedRowsNode>(LearnedBy::kSegment, table, out);
}

}  // namespace kvant::graph
