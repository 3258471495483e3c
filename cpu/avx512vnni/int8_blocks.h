// Blocks of 256 weights and activations as AVX-512 VNNI multiplies them. Included inside the target
// region of matmul.cpp.
//
// The dot product of each group of 16 values falls into one 32-bit lane: VPDPBUSD adds four
// neighbouring products per lane, and vector s of a block holds values 4s..4s+3 of all 16 groups,
// so four of them, chained, finish the 16 groups. One conversion and one FMA with the scales, one
// per lane, then serve 256 products. Lane 4q + v belongs to group 4v + q, the order that
// transposing four vectors of consecutive values gives.
//
// Weights are stored as unsigned codes (code + Codes::kBias); the accumulator starts at -kBias *
// (sum of the activations), so integer dot products are exact.

// How a format's codes are stored in a WeightBlock.
template <int kBiasValue, bool kOffsets>
struct CodeTraits {
  static constexpr int kBias = kBiasValue;
  static constexpr bool kHasOffsets = kOffsets;
};

// Named vectors, not an array: GCC keeps an array in memory where registers would do.
struct WeightBlock {
  __m512i codes0, codes1, codes2, codes3;
  __m512 scales;
  __m512 offsets;  // unused unless Codes::kHasOffsets
};

struct ActivationBlock {
  __m512i codes0, codes1, codes2, codes3;
  __m512i bias;   // -kBias * sum of the group's codes
  __m512 scales;  // of the group
  __m512 sums;    // of the group
};

using Accumulator = __m512;

inline Accumulator Zero() { return _mm512_setzero_ps(); }

// Halves, quarters and eighths in a fixed order.
inline float Sum(Accumulator lanes) {
  const __m256 low = _mm512_castps512_ps256(lanes);
  const __m256 eight = _mm256_add_ps(low, _mm512_extractf32x8_ps(lanes, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// lane 4q + v = group 4v + q
inline __m512i GroupOfLane() {
  return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

// lane 4q + v = pair of groups (32 values) that group 4v + q belongs to
inline __m512i PairOfLane() {
  return _mm512_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7);
}

// From 256 consecutive codes to the order above: a 4x4 transposition of the 32-bit pieces in every
// quarter of the vectors.
template <class Block>
[[gnu::always_inline]] inline void TransposeCodes(__m512i v0, __m512i v1, __m512i v2, __m512i v3,
                                                  Block& out) {
  const __m512i low01 = _mm512_unpacklo_epi32(v0, v1);
  const __m512i high01 = _mm512_unpackhi_epi32(v0, v1);
  const __m512i low23 = _mm512_unpacklo_epi32(v2, v3);
  const __m512i high23 = _mm512_unpackhi_epi32(v2, v3);
  out.codes0 = _mm512_unpacklo_epi64(low01, low23);
  out.codes1 = _mm512_unpackhi_epi64(low01, low23);
  out.codes2 = _mm512_unpacklo_epi64(high01, high23);
  out.codes3 = _mm512_unpackhi_epi64(high01, high23);
}

// start + the integer dot products of the 16 groups.
[[gnu::always_inline]] inline __m512i DotGroups(__m512i start, const WeightBlock& weights,
                                                const ActivationBlock& activations) {
  __m512i dot = _mm512_dpbusd_epi32(start, weights.codes0, activations.codes0);
  dot = _mm512_dpbusd_epi32(dot, weights.codes1, activations.codes1);
  dot = _mm512_dpbusd_epi32(dot, weights.codes2, activations.codes2);
  return _mm512_dpbusd_epi32(dot, weights.codes3, activations.codes3);
}

template <class Codes>
[[gnu::always_inline]] inline Accumulator MultiplyAdd(const WeightBlock& weights,
                                                      const ActivationBlock& activations,
                                                      Accumulator sum) {
  const __m512i start = Codes::kBias == 0 ? _mm512_setzero_si512() : activations.bias;
  const __m512i dot = DotGroups(start, weights, activations);
  const __m512 scales = _mm512_mul_ps(weights.scales, activations.scales);
  sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scales, sum);
  if constexpr (Codes::kHasOffsets) {
    sum = _mm512_fnmadd_ps(weights.offsets, activations.sums, sum);
  }
  return sum;
}

// Block `i` of a token; values from `cols` on are zero.
template <class Codes>
inline ActivationBlock PrepareBlock(const ActivationRow& row, int64_t cols, int64_t i) {
  const int64_t begin = i * 256;
  const int64_t count = std::min<int64_t>(256, cols - begin);
  __m512i v[4];
  for (int64_t k = 0; k < 4; ++k) {
    const int64_t left = std::clamp<int64_t>(count - 64 * k, 0, 64);
    const __mmask64 mask = left == 64 ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
    v[k] = _mm512_maskz_loadu_epi8(mask, row.codes + begin + 64 * k);
  }
  ActivationBlock block;
  TransposeCodes(v[0], v[1], v[2], v[3], block);
  const __m512i bias = _mm512_set1_epi8(static_cast<char>(Codes::kBias));
  const __m512i biased =
      DotGroups(_mm512_setzero_si512(), WeightBlock{bias, bias, bias, bias, {}, {}}, block);
  block.bias = _mm512_sub_epi32(_mm512_setzero_si512(), biased);
  const __mmask16 pairs = static_cast<__mmask16>((1u << (count / 32)) - 1);
  const __mmask16 groups = static_cast<__mmask16>((1u << (count / 16)) - 1);
  block.scales =
      _mm512_permutexvar_ps(PairOfLane(), _mm512_maskz_loadu_ps(pairs, row.scales + begin / 32));
  block.sums =
      _mm512_permutexvar_ps(GroupOfLane(), _mm512_maskz_loadu_ps(groups, row.sums + begin / 16));
  return block;
}
