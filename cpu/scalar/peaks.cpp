// Plain loops over arrays in the first-level cache: what a compiler makes of them for any
// processor, which is also what the scalar kernels could reach at most.
#include "cpu/scalar/peaks.h"

#include <cstring>

namespace kvant::cpu::scalar {
namespace {

constexpr int kValues = 64;

uint64_t Read(const std::byte* data, size_t bytes) {
  uint64_t words[4] = {};
  for (size_t i = 0; i < bytes; i += sizeof(words)) {
    uint64_t loaded[4];
    std::memcpy(loaded, data + i, sizeof(loaded));
    for (int k = 0; k < 4; ++k) words[k] ^= loaded[k];
  }
  return words[0] ^ words[1] ^ words[2] ^ words[3];
}

template <class Value, class Sum>
int64_t MultiplyAccumulate(int64_t rounds) {
  Value a[kValues];
  Value b[kValues];
  Sum sums[kValues] = {};
  for (int i = 0; i < kValues; ++i) a[i] = b[i] = Value{1};
  for (int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+m"(a), "+m"(b));  // as if other values had come
    for (int i = 0; i < kValues; ++i) sums[i] += static_cast<Sum>(a[i]) * static_cast<Sum>(b[i]);
  }
  int64_t total = 0;
  for (const Sum sum : sums) total += static_cast<int64_t>(sum);
  return total;
}

}  // namespace

const PeakLoops* Peaks() {
  static constexpr PeakLoops kPeaks = {
      .read = Read,
      .int8 = {"scalar", kValues, MultiplyAccumulate<int8_t, int32_t>},
      .int16 = {"scalar", kValues, MultiplyAccumulate<int16_t, int32_t>},
      .float32 = {"scalar", kValues, MultiplyAccumulate<float, float>},
  };
  return &kPeaks;
}

}  // namespace kvant::cpu::scalar
