// Matrix products of one or several weight matrices with the same activations.
//
// The rows of all parts form one row space that is split over the team at the kernels' row tiles.
// Float matrices with many tokens may go to a library, in tiles of weight rows whose borders depend
// on the matrix alone.
#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/graph/nodes.h"
#include "quant/format.h"

namespace kvant::graph {
namespace {

// A decoded tile of weight rows for the float GEMM stays within a core's share of the cache.
constexpr int64_t kTileValues = 64 * 2048;
constexpr int64_t kTileRowsMin = 16;
constexpr int64_t kTileRowsMax = 256;

int64_t GemmTileRows(int64_t cols) {
  return std::clamp(kTileValues / cols / kTileRowsMin * kTileRowsMin, kTileRowsMin, kTileRowsMax);
}

class MatMulNode final : public Node {
 public:
  MatMulNode(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm, std::string name,
             std::vector<MatMulPart> parts, std::vector<ValueId> reads, const Activations& in,
             ValueId out, cpu::Store store)
      : Node(std::move(name), std::move(reads), {out}),
        float_gemm_(float_gemm),
        parts_(std::move(parts)),
        in_(in),
        out_(out),
        store_(store) {
    for (const MatMulPart& part : parts_) {
      KVANT_CHECK(part.weight->dims[0] == in.cols);
      const auto format = static_cast<size_t>(quant::FormatIndex(*part.weight->format));
      kernels_.push_back(&kernels.matmul[format]);
      decode_.push_back(kernels.decode[format]);
    }
  }

  void Run(const StepContext& step, const ThreadPool::Member& member) const override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const bool library = UsesLibrary(i) && step.RowCount(out_) >= cpu::kManyTokens;
      const int64_t rows = parts_[i].weight->rows();
      const int64_t tile = library ? GemmTileRows(in_.cols) : kernels_[i]->row_tile;
      const Range range = OwnedRange(rows, tile, member.index, member.count);
      if (range.begin == range.end) continue;
      if (library) {
        RunLibrary(step, i, range, step.Scratch(member));
      } else {
        RunKernel(step, i, range, step.Scratch(member));
      }
      AddBias(step, parts_[i], range);
    }
  }

  size_t ScratchBytes(const StepLimits& limits) const override {
    size_t bytes = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      bytes = std::max(bytes, kernels_[i]->scratch_bytes(in_.cols));
      if (UsesLibrary(i) && limits.chunk >= cpu::kManyTokens) {
        bytes =
            std::max(bytes, static_cast<size_t>(GemmTileRows(in_.cols) * in_.cols) * sizeof(float));
      }
    }
    return bytes;
  }

  std::string Describe() const override {
    std::string text = store_ == cpu::Store::kAdd ? "matmul +=" : "matmul";
    for (size_t i = 0; i < parts_.size(); ++i) {
      const formats::GgufTensor& weight = *parts_[i].weight;
      text += fmt::format(" {} [{} x {}] {}{}{};", weight.name, weight.dims[0], weight.rows(),
                          kernels_[i]->name,
                          UsesLibrary(i) || UsesPanels(i)
                              ? fmt::format(" (>= {} rows: {})", cpu::kManyTokens, float_gemm_.name)
                              : "",
                          parts_[i].bias.empty() ? "" : " + bias");
    }
    text.pop_back();
    return text;
  }

 private:
  // With kManyTokens and more.
  bool UsesLibrary(size_t part) const {
    return kernels_[part]->activation == cpu::ActivationKind::kFloat32 &&
           float_gemm_.run != nullptr;
  }
  bool UsesPanels(size_t part) const {
    return float_gemm_.panels && kernels_[part]->run_many != nullptr;
  }

  void RunKernel(const StepContext& step, size_t i, const Range& range,
                 std::span<std::byte> scratch) const {
    const formats::GgufTensor& weight = *parts_[i].weight;
    const ValueId in =
        kernels_[i]->activation == cpu::ActivationKind::kInt8 ? in_.int8 : in_.floats;
    cpu::MatMulTask task;
    task.format = weight.format;
    task.weights = weight.data;
    task.row_bytes = weight.row_bytes();
    task.cols = in_.cols;
    task.row_begin = range.begin;
    task.row_end = range.end;
    task.activations = step.Bytes(in);
    task.activation_stride = static_cast<int64_t>(step.RowBytes(in));
    task.tokens = step.RowCount(out_);
    task.out = step.Floats(out_) + parts_[i].out_col;
    task.out_stride = step.RowFloats(out_);
    task.store = store_;
    task.scratch = scratch;
    const bool panels = UsesPanels(i) && task.tokens >= cpu::kManyTokens;
    panels ? kernels_[i]->run_many(task) : kernels_[i]->run(task);
  }

  void RunLibrary(const StepContext& step, size_t i, const Range& range,
                  std::span<std::byte> scratch) const {
    const formats::GgufTensor& weight = *parts_[i].weight;
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
      float_gemm_.run(floats, rows, in_.cols, step.Floats(in_.floats), step.RowFloats(in_.floats),
                      step.RowCount(out_), step.Floats(out_) + parts_[i].out_col + row,
                      step.RowFloats(out_), store_ == cpu::Store::kAdd);
    }
  }

  void AddBias(const StepContext& step, const MatMulPart& part, const Range& range) const {
    if (part.bias.empty()) return;
    for (int64_t token = 0; token < step.RowCount(out_); ++token) {
      float* out = step.FloatRow(out_, token) + part.out_col;
      for (int64_t row = range.begin; row < range.end; ++row)
        out[row] += part.bias[static_cast<size_t>(row)];
    }
  }

  const cpu::FloatGemm& float_gemm_;
  std::vector<MatMulPart> parts_;
  std::vector<const cpu::MatMulKernel*> kernels_;  // one per part
  std::vector<cpu::DecodeFunction> decode_;        // one per part
  Activations in_;
  ValueId out_;
  cpu::Store store_;
};

}  // namespace

std::unique_ptr<Node> MakeMatMul(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
                                 std::string name, std::vector<MatMulPart> parts,
                                 const Activations& in, ValueId out, cpu::Store store) {
  std::vector<ValueId> reads = in.ids();
  if (store == cpu::Store::kAdd) reads.push_back(out);
  return std::make_unique<MatMulNode>(kernels, float_gemm, std::move(name), std::move(parts),
                                      std::move(reads), in, out, store);
}

}  // namespace kvant::graph
