// The activation quantizer for AVX2: 32 values at a time, the same bits as the scalar one.
#include "cpu/avx2/matmul.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cstring>
#include <limits>

#include "cpu/intrinsics.h"

#include "cpu/avx2/begin.inl"

namespace kvant::cpu::avx2 {
namespace {

// Magnitudes as the bits of floats, whose order as integers puts infinity and NaN on top.
inline __m256i Magnitude(__m256 values) {
  return _mm256_and_si256(_mm256_castps_si256(values), _mm256_set1_epi32(0x7fffffff));
}

inline int LargestLane(__m256i lanes) {
  const __m128i four =
      _mm_max_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  const __m128i two = _mm_max_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 1)));
}

inline int SumBytes(__m128i codes) {
  const __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), codes);
  const __m128i four = _mm_madd_epi16(pairs, _mm_set1_epi16(1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}

// Rounds to nearest even and narrows 16 values in [-127, 127].
inline __m128i RoundToBytes(__m256 low, __m256 high) {
  const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(low), _mm256_cvtps_epi32(high));
  const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
  return _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
}

// values: [32]
inline void QuantizeGroup(const float* values, const ActivationRow& out) {
  constexpr int kInfinity = 0x7f800000;
  __m256 v[4];
  __m256i magnitude = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(values + 8 * i);
    magnitude = _mm256_max_epi32(magnitude, Magnitude(v[i]));
  }
  const int bits = LargestLane(magnitude);
  const float largest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
  const bool finite = bits < kInfinity;
  __m128i low = _mm_setzero_si128();
  __m128i high = _mm_setzero_si128();
  if (!finite || largest < 0x1p-100f) {
    *out.scales = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  } else {
    *out.scales = largest / 127.0f;
    const __m256 inverse = _mm256_set1_ps(127.0f / largest);
    low = RoundToBytes(_mm256_mul_ps(v[0], inverse), _mm256_mul_ps(v[1], inverse));
    high = RoundToBytes(_mm256_mul_ps(v[2], inverse), _mm256_mul_ps(v[3], inverse));
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.codes), low);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.codes + 16), high);
  StoreCodeSums(SumBytes(low), SumBytes(high), out);
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

}  // namespace kvant::cpu::avx2

#include "cpu/avx2/end.inl"

#endif  // defined(__x86_64__)
