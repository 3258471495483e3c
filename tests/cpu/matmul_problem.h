// A matrix product with random operands in exactly sized buffers, most with a guarded end, and its
// double-precision reference: shared by the tests and the kernel benchmark.
//
// The reference multiplies the decoded weights with the values that the kernel reads: floats, or
// the activations in the records; where records are bfloat16, weights are rounded as well. So only
// the rounding of the kernel's float sums remains, which ErrorBound() bounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/half.h"
#include "cpu/activations.h"
#include "cpu/float_gemm.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/matmul.h"
#include "cpu/kernels/table.h"
#include "cpu/kernels/token_count.h"
#include "quant/format.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu {

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte[], FreeDeleter>;

// Exactly `bytes` bytes at a multiple of `alignment`, so that sanitizers see every byte beyond.
inline Bytes AllocateBytes(size_t bytes, size_t alignment = 64) {
  void* p = nullptr;
  if (posix_memalign(&p, alignment, bytes > 0 ? bytes : 1) != 0) std::abort();
  return Bytes(static_cast<std::byte*>(p));
}

// A block of random bits whose scales are finite and of moderate size; float values in [-2, 2].
inline void FillRandomBlock(const quant::FormatTraits& format, std::mt19937& random,
                            std::byte* block) {
  if (!format.quantized()) {
    const float value = std::uniform_real_distribution<float>(-2, 2)(random);
    format.encode(&value, nullptr, block, 1);
    return;
  }
  for (;;) {
    for (int i = 0; i < format.block_bytes; ++i) block[i] = static_cast<std::byte>(random());
    quant::IntegerBlock integers{};
    format.to_integers(block, integers);
    float largest = 0;
    for (int group = 0; group < format.block_values / quant::kGroupValues; ++group) {
      // NaN fails the comparison below.
      largest = std::max(largest, std::abs(integers.scales[group]));
      if (!(std::abs(integers.offsets[group]) < 1e3f)) largest = 1e9f;
      if (!(std::abs(integers.scales[group]) < 1e3f)) largest = 1e9f;
    }
    if (largest > 1e-3f && largest < 1e3f) return;
  }
}

// Fills the head of a row with random bits that give a factor of moderate size.
inline void FillRandomHead(const quant::FormatTraits& format, std::mt19937& random,
                           std::byte* row) {
  float factor = 0;
  while (format.head_bytes > 0 && !(std::abs(factor) > 1e-3f && std::abs(factor) < 10)) {
    for (int i = 0; i < format.head_bytes; ++i) row[i] = static_cast<std::byte>(random());
    factor = format.row_factor(row);
  }
}

class MatMulProblem {
 public:
  // Repeats the blocks of a few random rows where the matrix is large.
  MatMulProblem(const KernelTable& kernels, const quant::FormatTraits& format, int64_t rows,
                int64_t cols, int64_t tokens, uint32_t seed = 1)
      : format_(format),
        kernel_(kernels.matmul[static_cast<size_t>(quant::FormatIndex(format))]),
        scalar_(std::string_view(kernels.isa) == "scalar"),
        form_(kernels.FormFor(TokenCountOf(tokens))),
        rows_(rows),
        cols_(cols),
        tokens_(tokens),
        weights_(AllocateBytes(kMisalignment + static_cast<size_t>(rows * format.row_bytes(cols)))),
        floats_(static_cast<size_t>(tokens * cols)),
        records_(static_cast<size_t>(tokens) * ActivationRowBytes(cols)),
        scratch_(RoundUp(kernel_.scratch_bytes(cols), 64)) {
    std::fill(records_.begin(), records_.end(), std::byte{0xff});
    std::fill(scratch_.begin(), scratch_.end(), std::byte{0xff});
    std::mt19937 random(seed);
    constexpr int64_t kDistinctRows = 64;
    for (int64_t row = 0; row < rows; ++row) {
      std::byte* bytes = weights() + row * format.row_bytes(cols);
      if (row >= kDistinctRows) {
        std::copy_n(bytes - kDistinctRows * format.row_bytes(cols), format.row_bytes(cols), bytes);
        continue;
      }
      FillRandomHead(format, random, bytes);
      for (int64_t i = 0; i < cols / format.block_values; ++i) {
        FillRandomBlock(format, random, bytes + format.head_bytes + i * format.block_bytes);
      }
    }
    std::normal_distribution<float> normal;
    for (float& value : floats_) value = normal(random);
    for (int64_t token = 0; token < tokens; ++token) {
      Quantize(kernels, token);
    }
  }

  // The record of a token again, from its floats.
  void Quantize(const KernelTable& kernels, int64_t token) {
    kernels.Quantize(TokenCountOf(tokens_), FloatRow(token), cols_, Record(token));
  }
  // Gives all activations of a token's record the code `code` and the scale 1.
  void SetActivations(int64_t token, int8_t code) {
    const ActivationRow record = Record(token);
    if (form_ == ActivationForm::kBf16) {
      std::fill_n(record.halves, cols_, F32ToBf16(code));
      return;
    }
    std::fill_n(record.codes, cols_, code);
    for (int64_t col = 0; col < cols_; col += 32) {
      const ActivationRow pair = record.From(col);
      *pair.scales = 1.0f;
      StoreCodeSums(16 * code, 16 * code, pair);
    }
  }

  const quant::FormatTraits& format() const { return format_; }
  const MatMulKernel& kernel() const { return kernel_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t tokens() const { return tokens_; }
  std::byte* weights() const { return weights_.get() + kMisalignment; }
  ActivationRow Record(int64_t token) const {
    return ActivationRowAt(
        records_.data() + token * static_cast<int64_t>(ActivationRowBytes(cols_)), cols_);
  }
  float* FloatRow(int64_t token) { return floats_.data() + token * cols_; }

  // The task for all rows and tokens; out is [tokens][rows].
  MatMulTask Task(float* out) const {
    MatMulTask task;
    task.format = &format_;
    task.weights = weights();
    task.row_bytes = format_.row_bytes(cols_);
    task.cols = cols_;
    task.row_begin = 0;
    task.row_end = rows_;
    const bool int8 = kernel_.activation == ActivationKind::kInt8;
    task.activations = int8 ? records_.data() : reinterpret_cast<const std::byte*>(floats_.data());
    task.activation_stride = int8 ? static_cast<int64_t>(ActivationRowBytes(cols_))
                                  : cols_ * static_cast<int64_t>(sizeof(float));
    task.tokens = tokens_;
    task.out = out;
    task.out_stride = rows_;
    task.store = Store::kSet;
    task.scratch = {scratch_.data(), kernel_.scratch_bytes(cols_)};
    return task;
  }

  // Multiplies as the engine does it.
  void Multiply(MatMulTask task) const {
    task.count = TokenCountOf(task.tokens);
    const bool many = task.count == TokenCount::kMany && kernel_.run_many != nullptr;
    many ? kernel_.run_many(task) : kernel_.run(task);
  }

  std::vector<float> Run() const {
    std::vector<float> out(static_cast<size_t>(tokens_ * rows_), -1.0f);
    Multiply(Task(out.data()));
    return out;
  }

  double Reference(int64_t token, int64_t row) const {
    const std::vector<float> decoded = DecodedRow(row);
    double sum = 0;
    for (int64_t col = 0; col < cols_; ++col) {
      sum += double{decoded[static_cast<size_t>(col)]} * Activation(token, col);
    }
    return sum;
  }

  // A bound on |kernel - Reference|. Every term passes through the float roundings of its own
  // products (decoded weight, scale products, sums[]: at most 5) and through at most `additions`
  // additions, each with a relative error of epsilon / 2 of what has been summed so far. Sums of
  // floats are those of at least four lanes, or of blocks of 256 columns; the scalar kernel's are
  // not divided.
  double ErrorBound(int64_t token, int64_t row) const {
    double magnitude = 0;
    if (!format_.quantized()) {
      const std::vector<float> decoded = DecodedRow(row);
      for (int64_t col = 0; col < cols_; ++col) {
        magnitude += std::abs(double{decoded[static_cast<size_t>(col)]} * Activation(token, col));
      }
    } else {
      ForWeights(row, [&](int64_t col, float scale, int code, float offset) {
        magnitude += (std::abs(double{scale} * code) + std::abs(double{offset})) *
                     std::abs(Activation(token, col));
      });
    }
    const int64_t divided = std::max(cols_ / 4 + 4, std::min<int64_t>(cols_, 256) + cols_ / 256);
    // A tile product of bfloat16 numbers adds 16 products to each of two sums, then both to a
    // third.
    const int64_t in_tiles = form_ == ActivationForm::kBf16 ? 18 : 0;
    const int64_t additions = format_.quantized() ? cols_ / 8 + 2 + in_tiles
                              : scalar_           ? cols_
                                                  : divided;
    const int64_t products = format_.head_bytes > 0 ? 7 : 5;  // a row's factor rounds once more
    return static_cast<double>(additions + products) * (std::numeric_limits<float>::epsilon() / 2) *
           magnitude;
  }

 private:
  // Rows begin at any even address in a file.
  static constexpr size_t kMisalignment = 2;

  double Activation(int64_t token, int64_t col) const {
    if (kernel_.activation == ActivationKind::kFloat32) {
      return floats_[static_cast<size_t>(token * cols_ + col)];
    }
    const ActivationRow row = Record(token);
    if (form_ == ActivationForm::kBf16) return double{Bf16ToF32(row.halves[col])};
    return double{row.scales[col / 32]} * row.codes[col];
  }

  std::vector<float> DecodedRow(int64_t row) const {
    std::vector<float> decoded(static_cast<size_t>(cols_));
    format_.decode(weights() + row * format_.row_bytes(cols_), decoded.data(), cols_);
    if (format_.quantized() && form_ == ActivationForm::kBf16) RoundRow(row, decoded);
    return decoded;
  }

  // Calls visit(column, scale, code, offset) for the weights of a row of quantized blocks.
  template <class Visit>
  void ForWeights(int64_t row, const Visit& visit) const {
    const std::byte* bytes = weights() + row * format_.row_bytes(cols_);
    const float factor = format_.head_bytes > 0 ? format_.row_factor(bytes) : 1.0f;
    bytes += format_.head_bytes;
    quant::IntegerBlock block{};
    for (int64_t col = 0; col < cols_; ++col) {
      const int64_t in_block = col % format_.block_values;
      if (in_block == 0) {
        format_.to_integers(bytes + col / format_.block_values * format_.block_bytes, block);
      }
      const int64_t group = in_block / quant::kGroupValues;
      visit(col, block.scales[group] * factor, block.codes[in_block], block.offsets[group]);
    }
  }

  // Rounds a row's weights like kernels for ActivationForm::kBf16: scale * code - offset is rounded
  // once to a float and then to bfloat16.
  void RoundRow(int64_t row, std::vector<float>& values) const {
    ForWeights(row, [&](int64_t col, float scale, int code, float offset) {
      const float value = std::fma(scale, static_cast<float>(code), -offset);
      values[static_cast<size_t>(col)] = Bf16ToF32(F32ToBf16(value));
    });
  }

  const quant::FormatTraits& format_;
  const MatMulKernel& kernel_;
  bool scalar_;
  ActivationForm form_;
  int64_t rows_;
  int64_t cols_;
  int64_t tokens_;
  Bytes weights_;
  test::GuardedArray<float> floats_;
  test::GuardedArray<std::byte> records_;  // NaN where the quantizer writes nothing
  test::GuardedArray<std::byte> scratch_;  // NaN at first
};

}  // namespace kvant::cpu
