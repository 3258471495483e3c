// The reference: one output at a time, in plain order, for every format. Never optimised.
#include "cpu/scalar/matmul.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cpu/matmul_table.h"

namespace kvant::cpu::scalar {
namespace {

constexpr int kGroup = quant::kGroupValues;

void StoreOutput(const MatMulTask& task, int64_t token, int64_t row, float value) {
  float& out = task.out[token * task.out_stride + row];
  out = task.store == Store::kAdd ? out + value : value;
}

// sum over groups of (weight scale * activation scale) * (integer dot product) - offset * sum.
float DotInt8(const MatMulTask& task, const quant::IntegerBlock* row, int64_t token) {
  std::byte* record = const_cast<std::byte*>(task.activations) + token * task.activation_stride;
  const ActivationRow activation = ActivationRowAt(record, task.cols);
  const int block_groups = task.format->block_values / kGroup;
  float sum = 0;
  for (int64_t group = 0; group < task.cols / kGroup; ++group) {
    const quant::IntegerBlock& block = row[group / block_groups];
    const int64_t in_block = group % block_groups;
    int dot = 0;
    for (int i = 0; i < kGroup; ++i) {
      dot += block.codes[in_block * kGroup + i] * activation.codes[group * kGroup + i];
    }
    sum += block.scales[in_block] * activation.scales[group / 2] * static_cast<float>(dot);
    sum -= block.offsets[in_block] * activation.sums[group];
  }
  return sum;
}

void RunInt8(const MatMulTask& task) {
  auto* blocks = reinterpret_cast<quant::IntegerBlock*>(task.scratch.data());
  for (int64_t row = task.row_begin; row < task.row_end; ++row) {
    const quant::FormatTraits& format = *task.format;
    const std::byte* bytes = task.weights + row * task.row_bytes;
    const float factor = format.head_bytes > 0 ? format.row_factor(bytes) : 1.0f;
    for (int64_t i = 0; i < task.cols / format.block_values; ++i) {
      format.to_integers(bytes + format.head_bytes + i * format.block_bytes, blocks[i]);
      if (format.head_bytes == 0) continue;
      for (int group = 0; group < format.block_values / kGroup; ++group) {
        blocks[i].scales[group] *= factor;
      }
    }
    for (int64_t token = 0; token < task.tokens; ++token) {
      StoreOutput(task, token, row, DotInt8(task, blocks, token));
    }
  }
}

void RunFloat(const MatMulTask& task) {
  float* weights = reinterpret_cast<float*>(task.scratch.data());
  for (int64_t row = task.row_begin; row < task.row_end; ++row) {
    task.format->decode(task.weights + row * task.row_bytes, weights, task.cols);
    for (int64_t token = 0; token < task.tokens; ++token) {
      const float* activations =
          reinterpret_cast<const float*>(task.activations + token * task.activation_stride);
      float sum = 0;
      for (int64_t col = 0; col < task.cols; ++col) sum += weights[col] * activations[col];
      StoreOutput(task, token, row, sum);
    }
  }
}

// One block holds at least 32 values.
size_t Int8ScratchBytes(int64_t cols) {
  return static_cast<size_t>(cols + 31) / 32 * sizeof(quant::IntegerBlock);
}

size_t FloatScratchBytes(int64_t cols) { return static_cast<size_t>(cols) * sizeof(float); }

// Quantizes a group of up to 32 values; the codes beyond `count` become zero.
void QuantizeGroup(const float* values, int64_t count, const ActivationRow& out) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    finite = finite && std::isfinite(values[i]);
    largest = std::max(largest, std::fabs(values[i]));
  }
  *out.scales = finite ? (largest < 0x1p-100f ? 0.0f : largest / 127.0f)
                       : std::numeric_limits<float>::quiet_NaN();
  const float inverse = *out.scales > 0 ? 127.0f / largest : 0.0f;
  int group_sums[2] = {0, 0};
  for (int64_t i = 0; i < 32; ++i) {
    const float scaled = i < count && finite ? values[i] * inverse : 0.0f;
    out.codes[i] = static_cast<int8_t>(std::nearbyint(scaled));
    group_sums[i / kGroup] += out.codes[i];
  }
  StoreCodeSums(group_sums[0], group_sums[1], out);
}

}  // namespace

void QuantizeActivations(const float* values, int64_t cols, const ActivationRow& out) {
  for (int64_t col = 0; col < cols; col += 32) {
    QuantizeGroup(values + col, std::min<int64_t>(32, cols - col), out.From(col));
  }
}

std::vector<MatMulKernel> MatMulKernels() {
  std::vector<MatMulEntry> entries;
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    entries.push_back({format.type, format.quantized() ? RunInt8 : RunFloat});
  }
  return BuildMatMulTable(
      {"scalar", entries, RunInt8, RunInt8, Int8ScratchBytes, FloatScratchBytes});
}

}  // namespace kvant::cpu::scalar
