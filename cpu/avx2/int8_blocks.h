// Blocks of 256 weights and activations as AVX2 and AVX-VNNI multiply them. Included inside the
// target region of matmul.cpp, after byte_products.h, which says how codes are stored.
//
// A block is two halves of 128 values = 8 groups of 16. The dot product of each group falls into
// one 32-bit lane: vector s of a half holds values 4s..4s+3 of its 8 groups. Lane 4q + v of half h
// belongs to group 8h + 2v + q, the order that transposing four vectors of consecutive values
// gives.

// How a format's codes are stored in a WeightBlock.
template <int kBiasValue, int kCodeMaxValue, bool kOffsets>
struct CodeTraits {
  static constexpr int kBias = kBiasValue;
  static constexpr int kCodeMax = kCodeMaxValue;
  static constexpr bool kHasOffsets = kOffsets;
};

// Codes of eight bits with a sign, as StoreSigned leaves them.
template <bool kOffsets>
using SignedCodes = CodeTraits<kSignedBias, 128, kOffsets>;

struct WeightBlock {
  __m256i codes[8];  // half h: [4h, 4h + 4)
  __m256 scales[2];
  __m256 offsets[2];  // unused unless Codes::kHasOffsets
};

struct ActivationBlock {
  __m256i codes[8];
  __m256i bias[2];   // -kBias * sum of the group's codes
  __m256 scales[2];  // of the group
  __m256 sums[2];    // of the group
};

using Accumulator = __m256;

inline Accumulator Zero() { return _mm256_setzero_ps(); }

// Halves, quarters and eighths in a fixed order.
inline float Sum(Accumulator lanes) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The two halves of a added, then those of b.
inline __m256 AddHalves(__m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

// Of each half of a and b, the first two lanes plus the last two, interleaved.
inline __m256 AddPairsOfLanes(__m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
}

// The sums of eight accumulators, each the bits of Sum().
inline void SumEight(const Accumulator* v, int64_t stride, float* out) {
  const __m256 acbd =
      AddPairsOfLanes(AddHalves(v[0], v[stride]), AddHalves(v[2 * stride], v[3 * stride]));
  const __m256 egfh = AddPairsOfLanes(AddHalves(v[4 * stride], v[5 * stride]),
                                      AddHalves(v[6 * stride], v[7 * stride]));
  const __m256 sums =
      _mm256_add_ps(_mm256_shuffle_ps(acbd, egfh, 0x44), _mm256_shuffle_ps(acbd, egfh, 0xee));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(sums, order));
}

// lane 4q + v of a half = group 2v + q of it
inline __m256 PermuteGroups(const float* groups) {
  return _mm256_permutevar8x32_ps(_mm256_loadu_ps(groups),
                                  _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}

// The four scales of a half's pairs of groups (32 values each), in lane order.
inline __m256 RepeatPairs(const float* pairs) {
  return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(pairs));
}

// From 128 consecutive codes to the order above: a 4x4 transposition of the 32-bit pieces in both
// halves of the vectors.
[[gnu::always_inline]] inline void TransposeCodes(__m256i v0, __m256i v1, __m256i v2, __m256i v3,
                                                  __m256i* out) {
  const __m256i low01 = _mm256_unpacklo_epi32(v0, v1);
  const __m256i high01 = _mm256_unpackhi_epi32(v0, v1);
  const __m256i low23 = _mm256_unpacklo_epi32(v2, v3);
  const __m256i high23 = _mm256_unpackhi_epi32(v2, v3);
  out[0] = _mm256_unpacklo_epi64(low01, low23);
  out[1] = _mm256_unpackhi_epi64(low01, low23);
  out[2] = _mm256_unpacklo_epi64(high01, high23);
  out[3] = _mm256_unpackhi_epi64(high01, high23);
}

// sum + weights . activations
template <class Codes>
[[gnu::always_inline]] inline Accumulator MultiplyAddOne(const WeightBlock& weights,
                                                         const ActivationBlock& activations,
                                                         Accumulator sum) {
  for (int h = 0; h < 2; ++h) {
    const __m256i dot =
        DotGroups<Codes>(weights.codes + 4 * h, activations.codes + 4 * h, activations.bias[h]);
    const __m256 scales = _mm256_mul_ps(weights.scales[h], activations.scales[h]);
    sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scales, sum);
    if constexpr (Codes::kHasOffsets) {
      sum = _mm256_fnmadd_ps(weights.offsets[h], activations.sums[h], sum);
    }
  }
  return sum;
}

// sums[t] += weights . activations[t]
template <class Codes, int kTokens>
[[gnu::always_inline]] inline void MultiplyAdd(const WeightBlock& weights,
                                               const ActivationBlock* activations,
                                               Accumulator* sums) {
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    sums[t] = MultiplyAddOne<Codes>(weights, activations[t], sums[t]);
  }
}

// A block takes more than half of the registers.
constexpr int kRowsAtOnce = 1;
constexpr int kStreams = 2;

// Panels are packed from blocks as they are.
template <class Codes>
inline const WeightBlock& InGroupOrder(const WeightBlock& block) {
  return block;
}

// 256 activations in plain order: codes, eight scales, sixteen sums.
template <class Codes>
[[gnu::always_inline]] inline ActivationBlock ArrangeBlock(const int8_t* codes, const float* scales,
                                                           const float* sums) {
  ActivationBlock block;
  for (int h = 0; h < 2; ++h) {
    const __m256i* v = reinterpret_cast<const __m256i*>(codes) + 4 * h;
    TransposeCodes(_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1), _mm256_loadu_si256(v + 2),
                   _mm256_loadu_si256(v + 3), block.codes + 4 * h);
    __m256i total = _mm256_setzero_si256();
    for (int s = 0; s < 4; ++s) {
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), block.codes[4 * h + s]);
      total = _mm256_add_epi32(total, AddPairs(pairs));
    }
    block.bias[h] = _mm256_mullo_epi32(total, _mm256_set1_epi32(-Codes::kBias));
    block.scales[h] = RepeatPairs(scales + 4 * h);
    block.sums[h] = PermuteGroups(sums + 8 * h);
  }
  return block;
}

// Block `i` of a token; values from `cols` on are zero.
template <class Codes>
inline ActivationBlock PrepareBlock(const ActivationRow& row, int64_t cols, int64_t i) {
  const int64_t begin = i * 256;
  const int64_t count = cols - begin;
  if (count >= 256) {
    return ArrangeBlock<Codes>(row.codes + begin, row.scales + begin / 32, row.sums + begin / 16);
  }
  const size_t n = static_cast<size_t>(count);
  int8_t codes[256] = {};
  float scales[8] = {};
  float sums[16] = {};
  std::memcpy(codes, row.codes + begin, n);
  std::memcpy(scales, row.scales + begin / 32, n / 32 * sizeof(float));
  std::memcpy(sums, row.sums + begin / 16, n / 16 * sizeof(float));
  return ArrangeBlock<Codes>(codes, scales, sums);
}
