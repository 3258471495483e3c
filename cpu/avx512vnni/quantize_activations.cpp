// The activation quantizer for AVX-512: 256 values at a time, the same bits as the scalar one.
#include "cpu/avx512vnni/matmul.h"

#if defined(__x86_64__)

#include <algorithm>
#include <limits>

#include "cpu/intrinsics.h"

#include "cpu/avx512vnni/begin.inl"

namespace kvant::cpu::avx512vnni {
namespace {

// Groups of 32 values that are quantized together, so that what each has one of fills a vector.
constexpr int kGroups = 8;

inline __mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, 16)) - 1);
}

// The two halves of a in the lower eight lanes of x and y, the halves of b in the upper ones.
struct Halves {
  __m512i x, y;
  Halves(__m512i a, __m512i b)
      : x(_mm512_shuffle_i32x4(a, b, 0x44)), y(_mm512_shuffle_i32x4(a, b, 0xee)) {}
};
// The first and third quarters of a and b, the second and fourth.
struct Quarters {
  __m512i x, y;
  Quarters(__m512i a, __m512i b)
      : x(_mm512_shuffle_i32x4(a, b, 0x88)), y(_mm512_shuffle_i32x4(a, b, 0xdd)) {}
};

inline __m512i GreatestOf(__m512i a, __m512i b) { return _mm512_max_epu32(a, b); }
template <class Parts>
inline __m512i GreatestOf(const Parts& parts) {
  return GreatestOf(parts.x, parts.y);
}
template <class Parts>
inline __m512i SumOf(const Parts& parts) {
  return _mm512_add_epi32(parts.x, parts.y);
}

// Up to 256 values; missing values are zeros. kWhole: none are missing.
template <bool kWhole>
struct Values {
  __m512 low[kGroups], high[kGroups];  // of a group

  [[gnu::always_inline]] Values(const float* values, int64_t count) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      low[g] = LoadFirst(values + 32 * g, count - 32 * g);
      high[g] = LoadFirst(values + 32 * g + 16, count - 32 * g - 16);
    }
  }

  [[gnu::always_inline]] static __m512 LoadFirst(const float* values, int64_t count) {
    if constexpr (kWhole) return _mm512_loadu_ps(values);
    return _mm512_maskz_loadu_ps(FirstLanes(count), values);
  }

  // Largest magnitude of each group as the bits of a float, whose order as integers puts infinity
  // and NaN on top.
  [[gnu::always_inline]] __m256i Largest() const {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i of[kGroups];
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      of[g] = GreatestOf(_mm512_and_si512(_mm512_castps_si512(low[g]), magnitude),
                         _mm512_and_si512(_mm512_castps_si512(high[g]), magnitude));
    }
    const __m512i first =
        GreatestOf(Quarters(GreatestOf(Halves(of[0], of[1])), GreatestOf(Halves(of[2], of[3]))));
    const __m512i second =
        GreatestOf(Quarters(GreatestOf(Halves(of[4], of[5])), GreatestOf(Halves(of[6], of[7]))));
    const __m512i pairs =
        GreatestOf(_mm512_unpacklo_epi32(first, second), _mm512_unpackhi_epi32(first, second));
    const __m512i all = GreatestOf(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_BADC));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, all));
  }

  // The groups of a mask become zeros.
  void Clear(__mmask8 groups) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      const __mmask16 keep = (groups >> g & 1) != 0 ? __mmask16{0} : __mmask16{0xffff};
      low[g] = _mm512_maskz_mov_ps(keep, low[g]);
      high[g] = _mm512_maskz_mov_ps(keep, high[g]);
    }
  }
};

// The codes of groups 2 * kPair and 2 * kPair + 1: lane 4j + q holds the four from 4j on of quarter
// q of them.
template <int kPair, bool kWhole>
[[gnu::always_inline]] inline __m512i CodesOfPair(const Values<kWhole>& values, __m256 inverses) {
  const auto words = [&](int g) __attribute__((always_inline)) {
    const __m512 inverse =
        _mm512_permutexvar_ps(_mm512_set1_epi32(g), _mm512_castps256_ps512(inverses));
    return _mm512_packs_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(values.low[g], inverse)),
                              _mm512_cvtps_epi32(_mm512_mul_ps(values.high[g], inverse)));
  };
  return _mm512_packs_epi16(words(2 * kPair), words(2 * kPair + 1));
}

// Stores the codes of a pair in their order, and returns their sums by four, as they came.
[[gnu::always_inline]] inline __m512i StorePair(__m512i codes, int64_t groups, int8_t* out) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i in_order = _mm512_permutexvar_epi32(order, codes);
  if (groups >= 2) {
    _mm512_storeu_si512(out, in_order);
  } else if (groups == 1) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_castsi512_si256(in_order));
  }
  return _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), codes);
}

// Stores the sums and starts of `groups` groups, as StoreCodeSums does, from the sums of 16 codes
// each and the scales.
[[gnu::always_inline]] inline void StoreSums(__m512i sums, __m256 scales, int64_t groups,
                                             const ActivationRow& out) {
  const __mmask8 mask = static_cast<__mmask8>(FirstLanes(groups));
  const __mmask16 halves_mask = FirstLanes(2 * groups);
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  const __m512 halves_scales = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(scales));
  const __m512i origin = _mm512_set1_epi32(kDotOriginBits);
  const auto starts = [&](__m512i of) __attribute__((always_inline)) {
    return _mm512_sub_epi32(origin, _mm512_slli_epi32(of, 7));
  };
  _mm512_mask_storeu_ps(out.sums, halves_mask,
                        _mm512_mul_ps(halves_scales, _mm512_cvtepi32_ps(sums)));
  _mm512_mask_storeu_epi32(out.starts, halves_mask, starts(sums));
  const __m512i both = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_CDAB));
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m512i pairs = _mm512_permutexvar_epi32(even, both);
  _mm256_mask_storeu_ps(out.pair_sums, mask,
                        _mm256_mul_ps(scales, _mm256_cvtepi32_ps(_mm512_castsi512_si256(pairs))));
  _mm256_mask_storeu_epi32(out.pair_starts, mask, _mm512_castsi512_si256(starts(pairs)));
}

// At most kGroups groups. Inline, so that no vector of pointers is made of `out`: those that a
// caller has just stored cannot be read as a wider vector before they are in the cache.
template <bool kWhole>
[[gnu::always_inline]] inline void QuantizeGroups(const float* from, int64_t count,
                                                  const ActivationRow& out) {
  const int64_t groups = kWhole ? kGroups : std::min<int64_t>(kGroups, (count + 31) / 32);
  Values<kWhole> values(from, count);
  const __m256i bits = values.Largest();
  const __m256 largest = _mm256_castsi256_ps(bits);
  const __mmask8 infinite = _mm256_cmpge_epu32_mask(bits, _mm256_set1_epi32(0x7f800000));
  // NaN and infinity times zero would not convert to zero.
  if (infinite != 0) values.Clear(infinite);
  const __mmask8 scaled = static_cast<__mmask8>(
      _mm256_cmp_ps_mask(largest, _mm256_set1_ps(0x1p-100f), _CMP_GE_OQ) & ~infinite);
  const __m256 steps = _mm256_set1_ps(127.0f);
  const __m256 inverses = _mm256_maskz_div_ps(scaled, steps, largest);
  const __m256 nan = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
  const __m256 scales =
      _mm256_mask_mov_ps(_mm256_maskz_div_ps(scaled, largest, steps), infinite, nan);
  _mm256_mask_storeu_ps(out.scales, static_cast<__mmask8>(FirstLanes(groups)), scales);
  const __m512i first = StorePair(CodesOfPair<0>(values, inverses), groups, out.codes);
  const __m512i second = StorePair(CodesOfPair<1>(values, inverses), groups - 2, out.codes + 64);
  const __m512i third = StorePair(CodesOfPair<2>(values, inverses), groups - 4, out.codes + 128);
  const __m512i fourth = StorePair(CodesOfPair<3>(values, inverses), groups - 6, out.codes + 192);
  StoreSums(SumOf(Quarters(SumOf(Halves(first, second)), SumOf(Halves(third, fourth)))), scales,
            groups, out);
}

}  // namespace

void QuantizeActivations(const float* values, int64_t cols, const ActivationRow& out) {
  constexpr int64_t kStep = 32 * kGroups;
  int64_t col = 0;
  for (; col + kStep <= cols; col += kStep) {
    QuantizeGroups<true>(values + col, kStep, out.From(col));
  }
  if (col < cols) QuantizeGroups<false>(values + col, cols - col, out.From(col));
}

}  // namespace kvant::cpu::avx512vnni

#include "cpu/avx512vnni/end.inl"

#endif  // defined(__x86_64__)
