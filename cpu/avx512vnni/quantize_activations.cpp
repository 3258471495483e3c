// The activation quantizer for AVX-512: 32 values at a time, the same bits as the scalar one.
#include "cpu/avx512vnni/matmul.h"

#if defined(__x86_64__)

#include <algorithm>
#include <limits>

#include "cpu/intrinsics.h"

#include "cpu/avx512vnni/begin.inl"

namespace kvant::cpu::avx512vnni {
namespace {

// Largest magnitude as the bits of a float, whose order as integers puts infinity and NaN on top.
inline uint32_t LargestMagnitude(__m512 low, __m512 high) {
  const __m512i magnitudes = _mm512_set1_epi32(0x7fffffff);
  return _mm512_reduce_max_epu32(
      _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitudes),
                       _mm512_and_si512(_mm512_castps_si512(high), magnitudes)));
}

inline void QuantizeGroup(__m512 low, __m512 high, const ActivationRow& out) {
  constexpr uint32_t kInfinity = 0x7f800000;
  const uint32_t bits = LargestMagnitude(low, high);
  const float largest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
  const bool finite = bits < kInfinity;
  const bool zero = !finite || largest < 0x1p-100f;
  *out.scales = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : largest / 127.0f;
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / largest);
  // NaN and infinity times zero would not convert to zero.
  const __mmask16 keep = zero ? __mmask16{0} : __mmask16{0xffff};
  const __m512i code_low = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(low, inverse));
  const __m512i code_high = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(high, inverse));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.codes), _mm512_cvtepi32_epi8(code_low));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.codes + 16), _mm512_cvtepi32_epi8(code_high));
  StoreCodeSums(_mm512_reduce_add_epi32(code_low), _mm512_reduce_add_epi32(code_high), out);
}

inline __mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, 16)) - 1);
}

}  // namespace

void QuantizeActivations(const float* values, int64_t cols, const ActivationRow& out) {
  for (int64_t col = 0; col < cols; col += 32) {
    const __m512 low = _mm512_maskz_loadu_ps(FirstLanes(cols - col), values + col);
    const __m512 high = _mm512_maskz_loadu_ps(FirstLanes(cols - col - 16), values + col + 16);
    QuantizeGroup(low, high, out.From(col));
  }
}

}  // namespace kvant::cpu::avx512vnni

#include "cpu/avx512vnni/end.inl"

#endif  // defined(__x86_64__)
