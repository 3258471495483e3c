// The nodes for embeddings, quantization and rotary tables stand here. The loops over one row of an
// embedding or of a rotary table run once per token and have no kernel.
#include "engine/graph/rowwise/rowwise_nodes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "cpu/kernels/table.h"
#include "engine/graph/rowwise/rope.h"
#include "engine/kv/row_blocks.h"

namespace kvant::graph {
namespace {

// Columns that one task quantizes or activates: a multiple of 512, so that every array of an
// ActivationRow starts a task on its own cache line.
constexpr int64_t kColumnTile = 512;

class EmbedNode final : public Node {
 public:
  EmbedNode(const formats::GgufTensor& table, float scale, ValueId out)
      : Node("embed", {}, {out}), table_(table), scale_(scale), out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(out_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      const int64_t token = pass.tokens[static_cast<size_t>(row)];
      float* out = pass.FloatRow(out_, row);
      if (token >= table_.dims[1]) {  // a row block's row enters as it is
        std::copy_n(pass.row_blocks->Find(pass.tokens[static_cast<size_t>(row)]), table_.dims[0],
                    out);
        continue;
      }
      table_.format->decode(table_.data + token * table_.row_bytes(), out, table_.dims[0]);
      if (scale_ == 1.0f) continue;
      for (int64_t i = 0; i < table_.dims[0]; ++i) out[i] *= scale_;
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], table_.dims[0]);
  }

  std::string Describe() const override {
    return fmt::format("rows of {} {} [{} x {}]{}", table_.name, table_.format->name,
                       table_.dims[0], table_.dims[1],
                       scale_ == 1.0f ? "" : fmt::format(" * {}", scale_));
  }

 private:
  const formats::GgufTensor& table_;
  float scale_;
  ValueId out_;
};

// The cosine and sine of one angle take as long as norming this many values.
constexpr int64_t kValuesPerAngle = 128;

class RopeTableNode final : public Node {
 public:
  RopeTableNode(size_t rope, int64_t n_rot, ValueId cos_sin)
      : Node("rope_table", {}, {cos_sin}), rope_(rope), half_(n_rot / 2), cos_sin_(cos_sin) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(cos_sin_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      WriteCosSin(pass.ropes[rope_], pass.positions[static_cast<size_t>(row)],
                  pass.FloatRow(cos_sin_, row));
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], kValuesPerAngle * half_);
  }

  std::string Describe() const override {
    return fmt::format("cos, sin of {} angles a row", half_);
  }

 private:
  size_t rope_;
  int64_t half_;
  ValueId cos_sin_;
};

class QuantizeNode final : public Node {
 public:
  QuantizeNode(const cpu::KernelTable& kernels, std::string name, const Activations& activations)
      : Node(std::move(name), {activations.floats}, {activations.int8}),
        kernels_(kernels),
        activations_(activations) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t tiles = (activations_.cols + kColumnTile - 1) / kColumnTile;
    const Range range =
        OwnedRange(pass.RowCount(activations_.floats) * tiles, 1, member.index, member.count);
    for (int64_t task = range.begin; task < range.end; ++task) {
      const int64_t row = task / tiles;
      const int64_t col = task % tiles * kColumnTile;
      pass.Quantize(kernels_, pass.FloatRow(activations_.floats, row) + col,
                    std::min(kColumnTile, activations_.cols - col),
                    {activations_.int8, row, activations_.cols, col});
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], activations_.cols);
  }
  int64_t UnitsOf(const PassShape& pass) const override {
    return pass.rows[rows()] * ((activations_.cols + kColumnTile - 1) / kColumnTile);
  }

  std::string Describe() const override {
    return fmt::format("quantize int8 {} [{}]", kernels_.isa, activations_.cols);
  }

 private:
  const cpu::KernelTable& kernels_;
  Activations activations_;
};

class SelectRowsNode final : public Node {
 public:
  SelectRowsNode(ValueId in, ValueId out, int64_t cols, int64_t first)
      : Node("select_rows", {in}, {out}), in_(in), out_(out), cols_(cols), first_(first) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(out_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      std::memcpy(pass.FloatRow(out_, row),
                  pass.FloatRow(in_, pass.head[static_cast<size_t>(row)]) + first_,
                  static_cast<size_t>(cols_) * sizeof(float));
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], cols_);
  }

  std::string Describe() const override { return fmt::format("rows with logits [{}]", cols_); }

 private:
  ValueId in_;
  ValueId out_;
  int64_t cols_;
  int64_t first_;
};

}  // namespace

std::unique_ptr<Node> MakeEmbed(const formats::GgufTensor& table, float scale, ValueId out) {
  return std::make_unique<EmbedNode>(table, scale, out);
}

void WriteCosSin(const RopeAngles& angles, int64_t position, float* cos_sin) {
  const size_t half = angles.frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * static_cast<double>(angles.frequencies[i]);
    cos_sin[i] = angles.amplitude * static_cast<float>(std::cos(angle));
    cos_sin[half + i] = angles.amplitude * static_cast<float>(std::sin(angle));
  }
}

std::unique_ptr<Node> MakeRopeTable(size_t rope, int64_t n_rot, ValueId cos_sin) {
  return std::make_unique<RopeTableNode>(rope, n_rot, cos_sin);
}

std::unique_ptr<Node> MakeQuantize(const cpu::KernelTable& kernels, std::string name,
                                   const Activations& activations) {
  return std::make_unique<QuantizeNode>(kernels, std::move(name), activations);
}

std::unique_ptr<Node> MakeSelectRows(ValueId in, ValueId out, int64_t cols, int64_t first) {
  return std::make_unique<SelectRowsNode>(in, out, cols, first);
}

}  // namespace kvant::graph
