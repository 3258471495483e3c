// The activation quantizer for NEON: 32 values at a time, the same bits as the scalar one.
#include "cpu/neon/matmul.h"

#if defined(__aarch64__)

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "cpu/intrinsics.h"

#include "cpu/neon/begin.inl"

namespace kvant::cpu::neon {
namespace {

// Rounds to nearest even and narrows 16 values in [-127, 127].
inline int8x16_t RoundToBytes(const float32x4_t* values, float factor) {
  int16x4_t words[4];
  for (int i = 0; i < 4; ++i) {
    words[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(values[i], factor)));
  }
  return vcombine_s8(vmovn_s16(vcombine_s16(words[0], words[1])),
                     vmovn_s16(vcombine_s16(words[2], words[3])));
}

// values: [32]
inline void QuantizeGroup(const float* values, const ActivationRow& out) {
  constexpr uint32_t kInfinity = 0x7f800000;
  float32x4_t v[8];
  // Magnitudes as the bits of floats, whose order as integers puts infinity and NaN on top.
  uint32x4_t magnitude = vdupq_n_u32(0);
  for (int i = 0; i < 8; ++i) {
    v[i] = vld1q_f32(values + 4 * i);
    magnitude = vmaxq_u32(magnitude, vreinterpretq_u32_f32(vabsq_f32(v[i])));
  }
  const uint32_t bits = vmaxvq_u32(magnitude);
  const float largest = std::bit_cast<float>(bits);
  const bool finite = bits < kInfinity;
  int8x16_t low = vdupq_n_s8(0);
  int8x16_t high = vdupq_n_s8(0);
  if (!finite || largest < 0x1p-100f) {
    *out.scales = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  } else {
    *out.scales = largest / 127.0f;
    const float inverse = 127.0f / largest;
    low = RoundToBytes(v, inverse);
    high = RoundToBytes(v + 4, inverse);
  }
  vst1q_s8(out.codes, low);
  vst1q_s8(out.codes + 16, high);
  StoreCodeSums(vaddlvq_s8(low), vaddlvq_s8(high), out);
}

}  // namespace

void QuantizeActivations(const float* values, int64_t cols, const ActivationRow& out) {
  int64_t col = 0;
  for (; col + 32 <= cols; col += 32) {
    QuantizeGroup(values + col, out.From(col));
  }
  if (col == cols) return;
  float padded[32] = {};
  std::memcpy(padded, values + col, static_cast<size_t>(cols - col) * sizeof(float));
  QuantizeGroup(padded, out.From(col));
}

}  // namespace kvant::cpu::neon

#include "cpu/neon/end.inl"

#endif  // defined(__aarch64__)
