// Matrix products of one or several weight matrices with the same activations, and the gated unit,
// which goes on with the columns that it has just computed.
//
// The rows of each operand are split over the team at its kernel's row tiles. Float matrices with
// many tokens may go to a library, in tiles of weight rows whose borders depend on the matrix
// alone.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/check.h"
#include "cpu/float_gemm.h"
#include "cpu/kernels.h"
#include "engine/graph/gated_columns.h"
#include "engine/graph/nodes.h"
#include "formats/gguf.h"
#include "quant/format.h"

namespace kvant::graph {
namespace {

// Values of a tile of weight rows that is decoded for the library: 512 KiB of floats, which stay in
// a core's second-level cache.
constexpr int64_t kTileValues = 64 * 2048;
constexpr int64_t kTileRowsMin = 16;
constexpr int64_t kTileRowsMax = 256;

int64_t GemmTileRows(int64_t cols) {
  return std::clamp(kTileValues / cols / kTileRowsMin * kTileRowsMin, kTileRowsMin, kTileRowsMax);
}

// Products of weight matrices with activations. The arithmetic follows from the formats of the
// matrices and from whether there are few tokens or many (cpu::TokenCountOf).
class Product {
 public:
  Product(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
          std::vector<MatMulOperand> operands, const Activations& in, ValueId out, cpu::Store store)
      : float_gemm_(float_gemm), operands_(std::move(operands)), in_(in), out_(out), store_(store) {
    for (const MatMulOperand& operand : operands_) {
      KVANT_CHECK(operand.weight->dims[0] == in.cols);
      KVANT_CHECK(operand.scale == 1 || store == cpu::Store::kSet);
      const auto format = static_cast<size_t>(quant::FormatIndex(*operand.weight->format));
      kernels_.push_back(&kernels.matmul[format]);
      decode_.push_back(kernels.decode[format]);
    }
  }

  size_t operands() const { return operands_.size(); }
  int64_t rows(size_t operand) const { return operands_[operand].weight->rows(); }

  // Shares of an operand's rows begin at multiples of this.
  int64_t RowTile(const PassContext& pass, size_t operand) const {
    return UsesLibrary(operand) && Many(pass) ? GemmTileRows(in_.cols)
                                              : kernels_[operand]->row_tile;
  }

  // Computes the products of some weight rows of one operand, for a share of `node`.
  void Run(const PassContext& pass, const ThreadPool::Member& member, const Node& node,
           size_t operand, const Range& rows) const {
    if (rows.begin == rows.end) return;
    const std::span<std::byte> scratch = pass.Scratch(member);
    cpu::ArrangedActivations& arranged = pass.Arranged(member, node);
    if (kernels_[operand]->activation == cpu::ActivationKind::kInt8) {
      cpu::MatMulTask task = KernelTask(pass, operand, rows, scratch);
      task.arranged = &arranged;
      kernels_[operand]->run(task);
    } else {
      arranged = {};
      MultiplyFloats(pass, operand, rows, scratch);
    }
    Multiply(pass, operands_[operand], rows);
    AddBias(pass, operands_[operand], rows);
  }

  size_t ScratchBytes(const PassLimits& limits) const {
    size_t bytes = 0;
    for (size_t i = 0; i < operands_.size(); ++i) {
      bytes = std::max(bytes, kernels_[i]->scratch_bytes(in_.cols));
      if (UsesLibrary(i) && limits.chunk >= cpu::kManyTokens) {
        bytes =
            std::max(bytes, static_cast<size_t>(GemmTileRows(in_.cols) * in_.cols) * sizeof(float));
      }
    }
    return bytes;
  }

  void AddWork(int64_t tokens, Work& work) const {
    if (tokens == 0) return;
    for (const MatMulOperand& operand : operands_) {
      work.AddProducts(*operand.weight, 1, static_cast<double>(tokens));
    }
  }

  std::vector<const formats::GgufTensor*> Matrices() const {
    std::vector<const formats::GgufTensor*> matrices;
    for (const MatMulOperand& operand : operands_) matrices.push_back(operand.weight);
    return matrices;
  }

  std::string Describe() const {
    std::string text = store_ == cpu::Store::kAdd ? "matmul +=" : "matmul";
    for (size_t i = 0; i < operands_.size(); ++i) {
      const formats::GgufTensor& weight = *operands_[i].weight;
      text += fmt::format(" {} [{} x {}] {}{}{};", weight.name, weight.dims[0], weight.rows(),
                          kernels_[i]->name,
                          UsesLibrary(i) || UsesPanels(i)
                              ? fmt::format(" (>= {} rows: {})", cpu::kManyTokens, float_gemm_.name)
                              : "",
                          operands_[i].bias.empty() ? "" : " + bias");
      if (operands_[i].scale != 1) text.insert(text.size() - 1, " * scale");
    }
    text.pop_back();
    return text;
  }

 private:
  bool Many(const PassContext& pass) const {
    return pass.TokenCount(out_) == cpu::TokenCount::kMany;
  }
  // Many tokens times a matrix of floats go to the library or to the kernel with panels; where
  // neither is there, to the kernel for few tokens.
  bool UsesLibrary(size_t operand) const {
    return kernels_[operand]->activation == cpu::ActivationKind::kFloat32 &&
           float_gemm_.run != nullptr;
  }
  bool UsesPanels(size_t operand) const {
    return float_gemm_.panels && kernels_[operand]->run_many != nullptr;
  }

  cpu::MatMulTask KernelTask(const PassContext& pass, size_t i, const Range& range,
                             std::span<std::byte> scratch) const {
    const formats::GgufTensor& weight = *operands_[i].weight;
    const ValueId in =
        kernels_[i]->activation == cpu::ActivationKind::kInt8 ? in_.int8 : in_.floats;
    cpu::MatMulTask task;
    task.format = weight.format;
    task.weights = weight.data;
    task.row_bytes = weight.row_bytes();
    task.cols = in_.cols;
    task.row_begin = range.begin;
    task.row_end = range.end;
    task.activations = pass.Bytes(in);
    task.activation_stride = static_cast<int64_t>(pass.RowBytes(in));
    task.tokens = pass.RowCount(out_);
    task.out = pass.Floats(out_) + operands_[i].out_col;
    task.out_stride = pass.RowFloats(out_);
    task.store = store_;
    task.scratch = scratch;
    task.count = pass.TokenCount(out_);
    return task;
  }

  void MultiplyFloats(const PassContext& pass, size_t i, const Range& range,
                      std::span<std::byte> scratch) const {
    if (Many(pass) && UsesLibrary(i)) return RunLibrary(pass, i, range, scratch);
    const cpu::MatMulTask task = KernelTask(pass, i, range, scratch);
    Many(pass) && UsesPanels(i) ? kernels_[i]->run_many(task) : kernels_[i]->run(task);
  }

  void RunLibrary(const PassContext& pass, size_t i, const Range& range,
                  std::span<std::byte> scratch) const {
    const formats::GgufTensor& weight = *operands_[i].weight;
    const int64_t tile = GemmTileRows(in_.cols);
    for (int64_t row = range.begin; row < range.end; row += tile) {
      const int64_t rows = std::min(tile, range.end - row);
      const std::byte* data = weight.data + row * weight.row_bytes();
      const float* floats = reinterpret_cast<const float*>(scratch.data());
      const bool in_place = weight.row_bytes() == in_.cols * static_cast<int64_t>(sizeof(float)) &&
                            reinterpret_cast<uintptr_t>(data) % alignof(float) == 0;
      if (in_place) {
        floats = reinterpret_cast<const float*>(data);
      } else {
        decode_[i](data, reinterpret_cast<float*>(scratch.data()), rows * in_.cols);
      }
      float_gemm_.run(floats, rows, in_.cols, pass.Floats(in_.floats), pass.RowFloats(in_.floats),
                      pass.RowCount(out_), pass.Floats(out_) + operands_[i].out_col + row,
                      pass.RowFloats(out_), store_);
    }
  }

  void Multiply(const PassContext& pass, const MatMulOperand& operand, const Range& range) const {
    if (operand.scale == 1) return;
    for (int64_t token = 0; token < pass.RowCount(out_); ++token) {
      float* out = pass.FloatRow(out_, token) + operand.out_col;
      for (int64_t row = range.begin; row < range.end; ++row) out[row] *= operand.scale;
    }
  }

  void AddBias(const PassContext& pass, const MatMulOperand& operand, const Range& range) const {
    if (operand.bias.empty()) return;
    for (int64_t token = 0; token < pass.RowCount(out_); ++token) {
      float* out = pass.FloatRow(out_, token) + operand.out_col;
      for (int64_t row = range.begin; row < range.end; ++row)
        out[row] += operand.bias[static_cast<size_t>(row)];
    }
  }

  const cpu::FloatGemm& float_gemm_;
  std::vector<MatMulOperand> operands_;
  std::vector<const cpu::MatMulKernel*> kernels_;  // one per operand
  std::vector<cpu::DecodeFunction> decode_;        // one per operand
  Activations in_;
  ValueId out_;
  cpu::Store store_;
};

class MatMulNode final : public Node {
 public:
  MatMulNode(std::string name, std::vector<ValueId> reads, ValueId out, Product product)
      : Node(std::move(name), std::move(reads), {out}), product_(std::move(product)) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    for (size_t i = 0; i < product_.operands(); ++i) {
      const Range rows =
          OwnedRange(product_.rows(i), product_.RowTile(pass, i), member.index, member.count);
      product_.Run(pass, member, *this, i, rows);
    }
  }

  size_t ScratchBytes(const PassLimits& limits) const override {
    return product_.ScratchBytes(limits);
  }
  std::string Describe() const override { return product_.Describe(); }
  void AddWork(const PassShape& pass, Work& work) const override {
    product_.AddWork(pass.rows[rows()], work);
  }
  std::vector<const formats::GgufTensor*> Matrices() const override { return product_.Matrices(); }

 private:
  Product product_;
};

// Gate and up are one operand of 2 * cols rows or two of cols rows; a share computes the same
// columns of both, so that it can go on with them.
class GatedUnitNode final : public Node {
 public:
  GatedUnitNode(std::string name, std::vector<ValueId> reads, std::vector<ValueId> writes,
                Product product, const GatedColumns& gated)
      : Node(std::move(name), std::move(reads), std::move(writes)),
        product_(std::move(product)),
        gated_(gated) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const size_t up = product_.operands() - 1;
    const int64_t tile = std::lcm(std::lcm(product_.RowTile(pass, 0), product_.RowTile(pass, up)),
                                  GatedColumns::kTile);
    const Range cols = OwnedRange(gated_.cols(), tile, member.index, member.count);
    const int64_t rows = pass.RowCount(gated_.gate_up());
    const int64_t piece = pass.TokenCount(gated_.gate_up()) == cpu::TokenCount::kFew
                              ? gated_.cols()
                              : (GatedColumns::kPiece + tile - 1) / tile * tile;
    for (int64_t begin = cols.begin; begin < cols.end; begin += piece) {
      const Range gates = {begin, std::min(begin + piece, cols.end)};
      const int64_t first_up = up == 0 ? gated_.cols() : 0;
      const Range ups = {first_up + gates.begin, first_up + gates.end};
      product_.Run(pass, member, *this, 0, gates);
      product_.Run(pass, member, *this, up, ups);
      gated_.Run(pass, {0, rows}, gates);
    }
  }

  size_t ScratchBytes(const PassLimits& limits) const override {
    return product_.ScratchBytes(limits);
  }

  void AddWork(const PassShape& pass, Work& work) const override {
    product_.AddWork(pass.rows[rows()], work);
  }
  std::vector<const formats::GgufTensor*> Matrices() const override { return product_.Matrices(); }

  std::string Describe() const override {
    return fmt::format("{}; {}", product_.Describe(), gated_.Describe());
  }

 private:
  Product product_;
  GatedColumns gated_;
};

}  // namespace

std::unique_ptr<Node> MakeMatMul(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
                                 std::string name, std::vector<MatMulOperand> operands,
                                 const Activations& in, ValueId out, cpu::Store store) {
  std::vector<ValueId> reads = in.ids();
  if (store == cpu::Store::kAdd) reads.push_back(out);
  return std::make_unique<MatMulNode>(
      std::move(name), std::move(reads), out,
      Product(kernels, float_gemm, std::move(operands), in, out, store));
}

std::unique_ptr<Node> MakeGatedUnit(const cpu::KernelTable& kernels,
                                    const cpu::FloatGemm& float_gemm, std::string name,
                                    std::vector<MatMulOperand> operands, const Activations& in,
                                    cpu::Activation activation, ValueId gate_up,
                                    const Activations& out) {
  KVANT_CHECK(operands.size() == 1 || operands.size() == 2);
  std::vector<ValueId> writes = out.ids();
  writes.push_back(gate_up);
  return std::make_unique<GatedUnitNode>(
      std::move(name), in.ids(), std::move(writes),
      Product(kernels, float_gemm, std::move(operands), in, gate_up, cpu::Store::kSet),
      GatedColumns(kernels, activation, gate_up, out));
}

}  // namespace kvant::graph
