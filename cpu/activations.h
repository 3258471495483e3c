// The two forms of activations that matrix kernels read: floats, or records that a kernel table's
// functions write.
//
// Thread-safety: pure functions over their arguments.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.h"

namespace kvant::cpu {

// The form of activations that a matrix kernel reads.
enum class ActivationKind : uint8_t {
  kFloat32,  // float [cols]
  kInt8,     // ActivationRow below, in the form that the kernel table says
};

// kDotOrigin is 1.5 * 2^23, and kDotOriginBits are its bits. Around it neighbouring floats differ
// by one, and their bits by one, too: an integer sum that starts at kDotOriginBits, read as a
// float, is kDotOrigin + sum.
inline constexpr float kDotOrigin = 12582912.0f;
inline constexpr int32_t kDotOriginBits = 0x4b400000;

// One row of activations quantized to int8: value[i] ~ scales[i / 32] * codes[i], round to nearest
// even, scale = absmax / 127 of its 32 values (0 for an all-zero group; NaN or infinity in the
// input gives a NaN scale, so that it is not hidden). sums[g] = scales[g / 2] * (sum of the 16
// codes of group g). Products with 64 and more rows, where weights are stored as code + 128, begin
// with the starts, which are kDotOriginBits less 128 times the sum of the codes. All arrays lie in
// one record of ActivationRowBytes(cols) bytes; only the groups of 32 values that hold some of the
// cols are written and read.
struct ActivationRow {
  int8_t* codes;         // [RoundUp(cols, 64)]
  float* scales;         // [RoundUp(cols, 512) / 32]
  float* sums;           // [RoundUp(cols, 256) / 16]
  float* pair_sums;      // [RoundUp(cols, 512) / 32] scales[i] * (sum of the 32 codes)
  int32_t* starts;       // [RoundUp(cols, 256) / 16] kDotOriginBits - 128 * (sum of the 16 codes)
  int32_t* pair_starts;  // [RoundUp(cols, 512) / 32] kDotOriginBits - 128 * (sum of the 32 codes)

  // ActivationForm::kBf16 has, in place of all arrays above and in the same memory, the upper
  // halves of floats, rounded to nearest even. [RoundUp(cols, 32)]
  uint16_t* halves = nullptr;

  // The part of the row that begins at column `col`, a multiple of 32.
  ActivationRow From(int64_t col) const {
    return {codes + col,
            scales + col / 32,
            sums + col / 16,
            pair_sums + col / 32,
            starts + col / 16,
            pair_starts + col / 32,
            halves != nullptr ? halves + col : nullptr};
  }
};

// The contents of a record of activations.
enum class ActivationForm : uint8_t { kInt8, kBf16 };

// Writes the sums and starts that follow from the sums of the two groups of 16 codes at the head of
// `row`, and from its scale.
inline void StoreCodeSums(int32_t first, int32_t second, const ActivationRow& row) {
  row.sums[0] = *row.scales * static_cast<float>(first);
  row.sums[1] = *row.scales * static_cast<float>(second);
  row.pair_sums[0] = *row.scales * static_cast<float>(first + second);
  row.starts[0] = kDotOriginBits - 128 * first;
  row.starts[1] = kDotOriginBits - 128 * second;
  row.pair_starts[0] = kDotOriginBits - 128 * (first + second);
}

// Where the arrays of an activation row lie in its record, in bytes from the codes, which come
// first. Every array starts at a multiple of 64 bytes, so that vectors of a block never straddle a
// cache line.
struct ActivationLayout {
  static constexpr size_t kAlignment = 64;

  size_t scales;
  size_t sums;
  size_t pair_sums;
  size_t starts;
  size_t pair_starts;
  size_t bytes;

  explicit ActivationLayout(int64_t cols) {
    const size_t n = static_cast<size_t>(cols);
    scales = RoundUp(n, kAlignment);
    const size_t by_pair = RoundUp(n, 512) / 32 * sizeof(float);
    const size_t by_group = RoundUp(n, 256) / 16 * sizeof(float);
    sums = scales + by_pair;
    pair_sums = sums + by_group;
    starts = pair_sums + by_pair;
    pair_starts = starts + by_group;
    // An odd number of lines: columns of records that follow each other then fall into different
    // sets of the first-level cache.
    const size_t halves = RoundUp(2 * n, kAlignment) + kAlignment;
    bytes = std::max(pair_starts + by_pair, halves) / kAlignment / 2 * 2 * kAlignment + kAlignment;
  }
};

inline size_t ActivationRowBytes(int64_t cols) { return ActivationLayout(cols).bytes; }

inline ActivationRow ActivationRowAt(std::byte* record, int64_t cols) {
  const ActivationLayout layout(cols);
  return {reinterpret_cast<int8_t*>(record),
          reinterpret_cast<float*>(record + layout.scales),
          reinterpret_cast<float*>(record + layout.sums),
          reinterpret_cast<float*>(record + layout.pair_sums),
          reinterpret_cast<int32_t*>(record + layout.starts),
          reinterpret_cast<int32_t*>(record + layout.pair_starts),
          reinterpret_cast<uint16_t*>(record)};
}

// Multiplies the values that a row of `cols` columns stands for by `factor`, up to rounding.
void MultiplyActivations(const ActivationRow& row, ActivationForm form, int64_t cols, float factor);

}  // namespace kvant::cpu
