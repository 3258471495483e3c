// Where the arrays of an activation row lie in its record. Every array starts at a multiple of
// 64 bytes, so that vectors of a block never straddle a cache line.
#include "cpu/activations.h"

#include <algorithm>

#include "base/aligned_buffer.h"
#include "base/half.h"

namespace kvant::cpu {
namespace {

constexpr size_t kAlignment = 64;

struct Layout {
  size_t scales;  // byte offsets in the record; codes come first
  size_t sums;
  size_t pair_sums;
  size_t starts;
  size_t pair_starts;
  size_t bytes;

  explicit Layout(int64_t cols) {
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

}  // namespace

size_t ActivationRowBytes(int64_t cols) { return Layout(cols).bytes; }

ActivationRow ActivationRowAt(std::byte* record, int64_t cols) {
  const Layout layout(cols);
  return {reinterpret_cast<int8_t*>(record),
          reinterpret_cast<float*>(record + layout.scales),
          reinterpret_cast<float*>(record + layout.sums),
          reinterpret_cast<float*>(record + layout.pair_sums),
          reinterpret_cast<int32_t*>(record + layout.starts),
          reinterpret_cast<int32_t*>(record + layout.pair_starts),
          reinterpret_cast<uint16_t*>(record)};
}

void MultiplyActivations(const ActivationRow& row, ActivationForm form, int64_t cols,
                         float factor) {
  const int64_t groups = (cols + 31) / 32;
  if (form == ActivationForm::kBf16) {
    for (int64_t i = 0; i < cols; ++i) {
      row.halves[i] = F32ToBf16(Bf16ToF32(row.halves[i]) * factor);
    }
    return;
  }
  // Scales, and the sums that contain them.
  for (int64_t i = 0; i < groups; ++i) row.scales[i] *= factor;
  for (int64_t i = 0; i < 2 * groups; ++i) row.sums[i] *= factor;
  for (int64_t i = 0; i < groups; ++i) row.pair_sums[i] *= factor;
}

}  // namespace kvant::cpu
