// Blocks of 256 weights and activations as AVX2 and AVX-VNNI multiply them. Included inside the
// target region of matmul.cpp, after byte_products.inl, which says how codes are stored.
//
// In LaneOrder::kGroups a block is two halves of 128 values = 8 groups of 16. The dot product of
// each group falls into one 32-bit lane: vector s of a half holds values 4s..4s+3 of its 8 groups.
// Lane 4q + v of half h belongs to group 8h + 2v + q, the order that transposing four vectors of
// consecutive values gives.
//
// Formats with one scale for 32 values, a pair of groups, need no transposition: in
// LaneOrder::kPairs the lower halves of vectors 2i and 2i + 1 hold pair 2i, the upper halves pair
// 2i + 1. The sums of a pair meet in one lane only in the end. Lanes then belong to pairs 0, 2, 4,
// 6, 1, 3, 5, 7, as do biases, scales, offsets and sums, in the first of their vectors. For many
// tokens a transposition costs less than the meeting of sums for each token: in
// LaneOrder::kPairLanes, which is otherwise like kPairs, every vector holds four values of each
// pair, in the pair's lane.
//
// Points of a grid (point_blocks.inl) are loaded whole, and lanes belong to pairs 0 to 7. In
// LaneOrder::kPoints and kDigits, for points of eight values, vector 4g + k holds values 8k to
// 8k + 7 of pairs 2g and 2g + 1 in its lower half and of pairs 4 + 2g and 5 + 2g in its upper one.
// In LaneOrder::kQuads, for points of four, vector s holds values 4s to 4s + 3 of each pair.
enum class LaneOrder { kGroups, kPairs, kPairLanes, kPoints, kDigits, kQuads };

constexpr bool TakesPairs(LaneOrder order) {
  return order == LaneOrder::kPairs || order == LaneOrder::kPairLanes;
}
constexpr bool HoldsPoints(LaneOrder order) {
  return order != LaneOrder::kGroups && !TakesPairs(order);
}

// How a format's codes are stored in a WeightBlock.
template <int kBiasValue, int kCodeMaxValue, bool kOffsets,
          LaneOrder kOrderValue = LaneOrder::kGroups>
struct CodeTraits {
  static constexpr LaneOrder kOrder = kOrderValue;
  static constexpr int kBias = kBiasValue;
  static constexpr int kCodeMax = kCodeMaxValue;
  static constexpr bool kHasOffsets = kOffsets;
};

// Codes of eight bits with a sign, as StoreSigned leaves them.
template <bool kOffsets>
using SignedCodes = CodeTraits<kSignedBias, 128, kOffsets>;

template <class Unpacker, int /*kTokens*/>
using CodesFor = typename Unpacker::Codes;

// The traits of codes that products need: whether codes have a bias, and how many products fit 16
// bits.
template <class Codes>
using ProductCodes = CodeTraits<Codes::kBias == 0 ? 0 : 1, ProductCodeMax(Codes::kCodeMax),
                                Codes::kHasOffsets, Codes::kOrder>;

// The traits of codes that the order of activations depends on.
template <class Codes>
using ActivationCodes = CodeTraits<Codes::kBias, 0, true, Codes::kOrder>;

struct WeightBlock {
  __m256i codes[8];  // half h: [4h, 4h + 4)
  union {
    __m256 scales[2];
    __m256i factors[2];  // kPoints, kDigits: of groups, in both words of their lanes
  };
  union {
    __m256 offsets[2];  // unused unless Codes::kHasOffsets
    __m256i signs[2];   // of points, see point_blocks.inl
  };
  float unit;  // kPoints, kDigits: what factors count
};

struct ActivationBlock {
  __m256i codes[8];
  __m256i bias[2];   // -kBias * sum of the codes of the group, or pair
  __m256 scales[2];  // of the group, or pair
  __m256 sums[2];    // the same
};

inline void ScaleBlock(WeightBlock& block, float factor) {
  for (__m256& scales : block.scales) scales = _mm256_mul_ps(scales, _mm256_set1_ps(factor));
}

using Accumulator = __m256;

inline Accumulator Zero() { return _mm256_setzero_ps(); }

// Halves, quarters and eighths in a fixed order.
inline float Sum(Accumulator lanes) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The lower four lanes are the sum of the two halves of a, the upper four the sum of the halves of
// b.
inline __m256 AddHalves(__m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

// In each half: lanes a0 + a2, b0 + b2, a1 + a3, b1 + b3.
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

// Lane 4q + v: group 2v + q of a half, or pair 2v + q of a block.
inline __m256 PermuteEight(const float* values) {
  return _mm256_permutevar8x32_ps(_mm256_loadu_ps(values),
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

// Lane r of vector l becomes lane l of vector r.
inline void TransposeLanes(__m256i* v) {
  __m256i quads[8];  // lane 4L + r of quads[4i + j] = column 4L + j of row 4i + r
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    const __m256i low01 = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    const __m256i high01 = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    const __m256i low23 = _mm256_unpacklo_epi32(v[i + 2], v[i + 3]);
    const __m256i high23 = _mm256_unpackhi_epi32(v[i + 2], v[i + 3]);
    quads[i] = _mm256_unpacklo_epi64(low01, low23);
    quads[i + 1] = _mm256_unpackhi_epi64(low01, low23);
    quads[i + 2] = _mm256_unpacklo_epi64(high01, high23);
    quads[i + 3] = _mm256_unpackhi_epi64(high01, high23);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    v[j] = _mm256_permute2x128_si256(quads[j], quads[4 + j], 0x20);
    v[4 + j] = _mm256_permute2x128_si256(quads[j], quads[4 + j], 0x31);
  }
}

// In both halves, lanes 0 and 2 of a, then of b; lanes 1 and 3.
inline __m256i EvenLanes(__m256i a, __m256i b) {
  return _mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
}
inline __m256i OddLanes(__m256i a, __m256i b) {
  return _mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xdd));
}

// In both halves, the sums of the two 64-bit words of a, then of b.
inline __m256i FoldWords(__m256i a, __m256i b) {
  return AddSums(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

// The integer dot products of pairs 0, 2, 4, 6, 1, 3, 5, 7. Lanes are folded by shuffles and
// additions; more multiplications by ones would wait for those of the codes.
template <class Codes>
[[gnu::always_inline]] inline __m256i DotPairs(const __m256i* w, const __m256i* x, __m256i bias) {
  const __m256i a = FoldWords(SumTwo<Codes>(w, x), SumTwo<Codes>(w + 2, x + 2));
  const __m256i b = FoldWords(SumTwo<Codes>(w + 4, x + 4), SumTwo<Codes>(w + 6, x + 6));
  constexpr bool kFits = 16 * 127 * Codes::kCodeMax <= INT16_MAX;
  __m256i dot;
  if constexpr (kFits || kWideSums) {
    dot = WidenSums(AddSums(EvenLanes(a, b), OddLanes(a, b)));
  } else {
    const __m256i wide_a = WidenSums(a);
    const __m256i wide_b = WidenSums(b);
    dot = _mm256_add_epi32(EvenLanes(wide_a, wide_b), OddLanes(wide_a, wide_b));
  }
  return Codes::kBias == 0 ? dot : _mm256_add_epi32(dot, bias);
}

// sum + weights . activations
template <class Codes>
  requires(TakesPairs(Codes::kOrder))
[[gnu::always_inline]] inline Accumulator MultiplyAddOne(const WeightBlock& weights,
                                                         const ActivationBlock& activations,
                                                         Accumulator sum) {
  const __m256i dot =
      Codes::kOrder == LaneOrder::kPairs
          ? DotPairs<Codes>(weights.codes, activations.codes, activations.bias[0])
          : DotPairLanes<Codes>(weights.codes, activations.codes, activations.bias[0]);
  const __m256 scales = _mm256_mul_ps(weights.scales[0], activations.scales[0]);
  sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scales, sum);
  if constexpr (Codes::kHasOffsets) {
    sum = _mm256_fnmadd_ps(weights.offsets[0], activations.sums[0], sum);
  }
  return sum;
}

template <class Codes>
  requires(Codes::kOrder == LaneOrder::kGroups)
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
  requires(!HoldsPoints(Codes::kOrder))
[[gnu::always_inline]] inline void MultiplyAdd(const WeightBlock& weights,
                                               const ActivationBlock* activations,
                                               Accumulator* sums) {
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    sums[t] = MultiplyAddOne<Codes>(weights, activations[t], sums[t]);
  }
}

// One row only: a WeightBlock takes 12 of the 16 registers.
constexpr int kRowsAtOnce = 1;
constexpr int kStreams = 2;
constexpr int kPairTokens = 0;
constexpr int kHeldTokens = 8;
constexpr bool kCountTokens = true;

// From two vectors of LaneOrder::kPairs the 32 codes of one pair, in plain order: of the pair in
// the lower halves, and of the pair in the upper ones.
[[gnu::always_inline]] inline __m256i JoinLower(__m256i a, __m256i b) {
  return _mm256_permute2x128_si256(a, b, 0x20);
}
[[gnu::always_inline]] inline __m256i JoinUpper(__m256i a, __m256i b) {
  return _mm256_permute2x128_si256(a, b, 0x31);
}

// From LaneOrder::kPairs to kPairLanes.
[[gnu::always_inline]] inline void GatherPairs(__m256i* codes) {
  __m256i out[8];
  TransposeCodes(codes[0], codes[2], codes[4], codes[6], out);
  TransposeCodes(codes[1], codes[3], codes[5], codes[7], out + 4);
  for (int i = 0; i < 8; ++i) codes[i] = out[i];
}

template <class PairCodes>
struct PairLaneCodes : PairCodes {
  static constexpr LaneOrder kOrder = LaneOrder::kPairLanes;
};

template <class PairUnpacker>
struct UnpackPairLanes {
  using Codes = PairLaneCodes<typename PairUnpacker::Codes>;
  static constexpr int64_t kBytes = PairUnpacker::kBytes;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& traits) {
    WeightBlock out = PairUnpacker::Unpack(bytes, traits);
    GatherPairs(out.codes);
    return out;
  }
};

template <class Unpacker, int kTokens>
struct ChooseUnpacker {
  using Type =
      std::conditional_t<Unpacker::Codes::kOrder == LaneOrder::kPairs && kTokens >= kPairLanesFrom,
                         UnpackPairLanes<Unpacker>, Unpacker>;
};
template <class Unpacker, int kTokens>
  requires requires { typename Unpacker::FewTokens; }
struct ChooseUnpacker<Unpacker, kTokens> {
  using Type = typename Unpacker::FewTokens;
};
template <class Unpacker, int kTokens>
using UnpackerFor = typename ChooseUnpacker<Unpacker, kTokens>::Type;

// A block of 256 activations whose arrays begin at `row`.
template <class Codes>
  requires(TakesPairs(Codes::kOrder))
[[gnu::always_inline]] inline ActivationBlock ArrangeBlock(const ActivationRow& row) {
  ActivationBlock block;
  const __m256i* v = reinterpret_cast<const __m256i*>(row.codes);
  for (int i = 0; i < 8; i += 2) {
    const __m256i even = _mm256_loadu_si256(v + i);
    const __m256i odd = _mm256_loadu_si256(v + i + 1);
    block.codes[i] = JoinLower(even, odd);
    block.codes[i + 1] = JoinUpper(even, odd);
  }
  const __m256i ones = _mm256_set1_epi8(1);
  __m256i totals[4];  // of each four codes
  for (int i = 0; i < 4; ++i) {
    const __m256i* both = block.codes + 2 * i;
    totals[i] = AddPairs(
        _mm256_add_epi16(_mm256_maddubs_epi16(ones, both[0]), _mm256_maddubs_epi16(ones, both[1])));
  }
  const __m256i total = _mm256_hadd_epi32(_mm256_hadd_epi32(totals[0], totals[1]),
                                          _mm256_hadd_epi32(totals[2], totals[3]));
  if constexpr (Codes::kOrder == LaneOrder::kPairLanes) GatherPairs(block.codes);
  block.bias[0] = _mm256_mullo_epi32(total, _mm256_set1_epi32(-Codes::kBias));
  block.scales[0] = PermuteEight(row.scales);
  block.sums[0] = PermuteEight(row.pair_sums);
  return block;
}

template <class Codes>
  requires(Codes::kOrder == LaneOrder::kGroups)
[[gnu::always_inline]] inline ActivationBlock ArrangeBlock(const ActivationRow& row) {
  ActivationBlock block;
  for (int h = 0; h < 2; ++h) {
    const __m256i* v = reinterpret_cast<const __m256i*>(row.codes) + 4 * h;
    TransposeCodes(_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1), _mm256_loadu_si256(v + 2),
                   _mm256_loadu_si256(v + 3), block.codes + 4 * h);
    __m256i total = _mm256_setzero_si256();
    for (int s = 0; s < 4; ++s) {
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), block.codes[4 * h + s]);
      total = _mm256_add_epi32(total, AddPairs(pairs));
    }
    block.bias[h] = _mm256_mullo_epi32(total, _mm256_set1_epi32(-Codes::kBias));
    block.scales[h] = RepeatPairs(row.scales + 4 * h);
    block.sums[h] = PermuteEight(row.sums + 8 * h);
  }
  return block;
}
