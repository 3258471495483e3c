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

// Formats with one scale for 32 values multiply two blocks together, a unit: the dots of the halves
// of a pair meet as integers, so that a conversion and an FMA serve 512 products. One or two tokens
// multiply blocks as they are unpacked and add halves afterwards. For more tokens the codes of both
// blocks are arranged so that eight chained VPDPBUSD add up a pair in its lane. The integers are
// the same, and so are the bits.

// The values that a lane of the four vectors of a block sums up.
enum class LaneOrder {
  kGroups,  // lane 4q + v: group 4v + q; vector s holds its values 4s..4s+3
  kPairs,  // lanes 2p and 2p + 1: pair p of groups, 32 values; vector s of lane 2p + h holds values
           // 8s + 4h..8s + 4h + 3 of it. For formats with one scale per 32 values.
};

// How a format's codes are stored in a WeightBlock.
template <int kBiasValue, bool kOffsets, LaneOrder kLanes = LaneOrder::kGroups>
struct CodeTraits {
  static constexpr int kBias = kBiasValue;
  static constexpr bool kHasOffsets = kOffsets;
  static constexpr LaneOrder kOrder = kLanes;
};

// Where the two halves of a pair meet in one lane: nowhere, because each has a scale; in dots; or
// before, in codes.
enum class Meet { kNever, kInDots, kInCodes };

template <class Codes, Meet kMeetValue>
struct UnitCodes : Codes {
  static constexpr Meet kMeet = kMeetValue;
  static constexpr int kUnit = kMeet == Meet::kNever ? 1 : 2;
  static constexpr bool kSharesScales = kMeet == Meet::kInCodes;
  static constexpr bool kBlockByBlock = kMeet == Meet::kInDots;
};

template <class Unpacker, int kTokens>
using CodesFor = UnitCodes<typename Unpacker::Codes, Unpacker::kScaleValues == 16 ? Meet::kNever
                                                     : kTokens <= 2               ? Meet::kInDots
                                                                                  : Meet::kInCodes>;

// The traits of codes that products need: whether codes have a bias and offsets, and how halves
// meet.
template <class Codes>
using ProductCodes =
    UnitCodes<CodeTraits<Codes::kBias == 0 ? 0 : 1, Codes::kHasOffsets,
                         Codes::kMeet == Meet::kInDots ? Codes::kOrder : LaneOrder::kGroups>,
              Codes::kMeet>;

// The traits of codes that the order of activations depends on.
template <class Codes>
using ActivationCodes = Codes;

// Named vectors, not an array: GCC keeps an array in memory where registers would do.
struct WeightBlock {
  __m512i codes0, codes1, codes2, codes3;
  __m512 scales;
  __m512 offsets;  // unused unless Codes::kHasOffsets; of a pair, in its odd lane
};

struct ActivationBlock {
  __m512i codes0, codes1, codes2, codes3;
  __m512i bias;   // -kBias * sum of the group's codes
  __m512 scales;  // of the group
  __m512 sums;    // of the group; of a pair, in its odd lane, 0 in the even one
};

inline void ScaleBlock(WeightBlock& block, float factor) {
  block.scales = _mm512_mul_ps(block.scales, _mm512_set1_ps(factor));
}

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

// The lower eight lanes are the sum of the two halves of a, the upper eight the sum of the halves
// of b.
inline __m512 AddHalves(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

// Quarters of four lanes: a0 + a1, a2 + a3, b0 + b1, b2 + b3, where a0 is the first quarter of a.
inline __m512 AddQuarters(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

// The sums of eight accumulators, each the bits of Sum().
inline void SumEight(const Accumulator* v, int64_t stride, float* out) {
  // Two accumulators per vector, then four, then the eight interleaved.
  const __m512 ab = AddHalves(v[0], v[stride]);
  const __m512 cd = AddHalves(v[2 * stride], v[3 * stride]);
  const __m512 ef = AddHalves(v[4 * stride], v[5 * stride]);
  const __m512 gh = AddHalves(v[6 * stride], v[7 * stride]);
  const __m512 abcd = AddQuarters(ab, cd);
  const __m512 efgh = AddQuarters(ef, gh);
  const __m512 pairs =
      _mm512_add_ps(_mm512_unpacklo_ps(abcd, efgh), _mm512_unpackhi_ps(abcd, efgh));
  const __m512 sums = _mm512_add_ps(pairs, _mm512_permute_ps(pairs, 0x4e));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
  _mm256_storeu_ps(out, _mm512_castps512_ps256(_mm512_permutexvar_ps(order, sums)));
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

// sum + the dots of a block or a unit times their scales, less what offsets take.
template <class Codes>
[[gnu::always_inline]] inline __m512 AddScaled(const WeightBlock& weights, __m512 scales,
                                               const __m512& sums, __m512i dots, __m512 sum) {
  sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_mul_ps(weights.scales, scales), sum);
  if constexpr (Codes::kHasOffsets) sum = _mm512_fnmadd_ps(weights.offsets, sums, sum);
  return sum;
}

// dots[t] = weights . activations[t]. The tokens advance side by side: one token's four dependent
// VPDPBUSD take 20 cycles, more than the scheduler looks ahead past.
template <class Codes, int kTokens>
[[gnu::always_inline]] inline void MultiplyCodes(const WeightBlock& weights,
                                                 const ActivationBlock* activations,
                                                 __m512i* dots) {
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    dots[t] = Codes::kBias == 0 ? _mm512_setzero_si512() : activations[t].bias;
    dots[t] = _mm512_dpbusd_epi32(dots[t], weights.codes0, activations[t].codes0);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    dots[t] = _mm512_dpbusd_epi32(dots[t], weights.codes1, activations[t].codes1);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    dots[t] = _mm512_dpbusd_epi32(dots[t], weights.codes2, activations[t].codes2);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    dots[t] = _mm512_dpbusd_epi32(dots[t], weights.codes3, activations[t].codes3);
  }
}

// sums[t] += weights . activations[t].
template <class Codes, int kTokens>
[[gnu::always_inline]] inline void MultiplyAdd(const WeightBlock& weights,
                                               const ActivationBlock* activations,
                                               Accumulator* sums) {
  __m512i dots[kTokens];
  MultiplyCodes<Codes, kTokens>(weights, activations, dots);
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    sums[t] =
        AddScaled<Codes>(weights, activations[t].scales, activations[t].sums, dots[t], sums[t]);
  }
}

// The first or the second halves of the pairs of two blocks, those of the first block in lanes
//   kPairs: 0, 1, 4, 5, 8, 9, 12, 13    kGroups: 0 to 7 (pairs 0, 2, 4, 6, 1, 3, 5, 7).
template <LaneOrder kOrder, int kHalf>
[[gnu::always_inline]] inline __m512i HalvesOf(__m512i first, __m512i second) {
  constexpr int kPick = kHalf == 0 ? 0x88 : 0xdd;
  if constexpr (kOrder == LaneOrder::kPairs) {
    return _mm512_castps_si512(
        _mm512_shuffle_ps(_mm512_castsi512_ps(first), _mm512_castsi512_ps(second), kPick));
  } else {
    return _mm512_shuffle_i32x4(first, second, kPick);
  }
}
template <LaneOrder kOrder, int kHalf>
[[gnu::always_inline]] inline __m512 HalvesOf(__m512 first, __m512 second) {
  return _mm512_castsi512_ps(
      HalvesOf<kOrder, kHalf>(_mm512_castps_si512(first), _mm512_castps_si512(second)));
}

// The pair of a unit that each lane then belongs to: 0 to 7 of the first block, 8 to 15.
template <LaneOrder kOrder>
inline __m512i PairOfUnitLane() {
  if constexpr (kOrder == LaneOrder::kPairs) {
    return _mm512_setr_epi32(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
  } else {
    return _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  }
}

// The scales and offsets of a unit's pairs into the first block.
template <class Codes>
[[gnu::always_inline]] inline void JoinScales(const WeightBlock* unit, WeightBlock& out) {
  constexpr LaneOrder kOrder = Codes::kOrder;
  out.scales = HalvesOf<kOrder, 0>(unit[0].scales, unit[1].scales);
  if constexpr (Codes::kHasOffsets) {
    constexpr int kHalf = kOrder == LaneOrder::kPairs ? 1 : 0;
    out.offsets = HalvesOf<kOrder, kHalf>(unit[0].offsets, unit[1].offsets);
  }
}

// Meet::kInCodes: the codes of a unit in vectors of which each holds four values of all pairs.
template <LaneOrder kOrder, class Block>
[[gnu::always_inline]] inline void JoinCodes(const Block& a, const Block& b, Block& first,
                                             Block& second) {
  const __m512i codes[8] = {a.codes0, b.codes0, a.codes1, b.codes1,
                            a.codes2, b.codes2, a.codes3, b.codes3};
  first.codes0 = HalvesOf<kOrder, 0>(codes[0], codes[1]);
  first.codes1 = HalvesOf<kOrder, 1>(codes[0], codes[1]);
  first.codes2 = HalvesOf<kOrder, 0>(codes[2], codes[3]);
  first.codes3 = HalvesOf<kOrder, 1>(codes[2], codes[3]);
  second.codes0 = HalvesOf<kOrder, 0>(codes[4], codes[5]);
  second.codes1 = HalvesOf<kOrder, 1>(codes[4], codes[5]);
  second.codes2 = HalvesOf<kOrder, 0>(codes[6], codes[7]);
  second.codes3 = HalvesOf<kOrder, 1>(codes[6], codes[7]);
}

template <class Codes>
[[gnu::always_inline]] inline void JoinUnit(const WeightBlock* unit, WeightBlock* out) {
  if constexpr (Codes::kMeet == Meet::kInCodes) {
    JoinCodes<Codes::kOrder>(unit[0], unit[1], out[0], out[1]);
    JoinScales<Codes>(unit, out[0]);
  } else if (out != unit) {
    out[0] = unit[0];
    out[1] = unit[1];
  }
}

// Meet::kInDots: what is kept of the blocks of a unit until their halves meet, so that the codes of
// one need no registers when the other is unpacked.
template <class Codes, int kTokens>
struct UnitDots {
  __m512i dots[2][kTokens];
  WeightBlock blocks[2];  // their scales and offsets

  template <int kBlockOfUnit>
  [[gnu::always_inline]] void Take(const WeightBlock& block, const ActivationBlock* activations) {
    MultiplyCodes<Codes, kTokens>(block, activations, dots[kBlockOfUnit]);
    blocks[kBlockOfUnit].scales = block.scales;
    blocks[kBlockOfUnit].offsets = block.offsets;
  }

  // In place of a block that is not there.
  template <int kBlockOfUnit>
  [[gnu::always_inline]] void Leave() {
    for (__m512i& each : dots[kBlockOfUnit]) each = _mm512_setzero_si512();
    blocks[kBlockOfUnit].scales = _mm512_setzero_ps();
    blocks[kBlockOfUnit].offsets = _mm512_setzero_ps();
  }

  // The activations are those of the first block.
  [[gnu::always_inline]] void AddTo(const ActivationBlock* activations, Accumulator* sums) const {
    WeightBlock joined;
    JoinScales<Codes>(blocks, joined);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const __m512i both = _mm512_add_epi32(HalvesOf<Codes::kOrder, 0>(dots[0][t], dots[1][t]),
                                            HalvesOf<Codes::kOrder, 1>(dots[0][t], dots[1][t]));
      sums[t] = AddScaled<Codes>(joined, activations[t].scales, activations[t].sums, both, sums[t]);
    }
  }
};

// sums[t] += the unit . activations[t], Meet::kInDots. The activations of a unit's second block lie
// `stride` behind those of its first.
template <class Codes, int kTokens>
[[gnu::always_inline]] inline void MultiplyAddUnit(const WeightBlock* unit,
                                                   const ActivationBlock* activations,
                                                   int64_t stride, Accumulator* sums) {
  UnitDots<Codes, kTokens> dots;
  dots.template Take<0>(unit[0], activations);
  dots.template Take<1>(unit[1], activations + stride);
  dots.AddTo(activations, sums);
}

// Rows that advance side by side where there are few tokens.
constexpr int kRowsAtOnce = 2;
constexpr int kStreams = 4;
// Tokens of MultiplyAddPair: the dots, sums and codes of two rows fill the registers.
constexpr int kPairTokens = 4;
constexpr int kHeldTokens = 4;
constexpr bool kCountTokens = false;

// dots += the products of codes, four neighbours in each lane. In assembly, because GCC 12 copies
// the sums of the intrinsic and reads the activations once for each row.
[[gnu::always_inline]] inline void AddProducts(__m512i weights, __m512i activations,
                                               __m512i& dots) {
  asm("vpdpbusd %2, %1, %0" : "+v"(dots) : "v"(weights), "v"(activations));
}

// dots_a[t] += a . tokens[t], dots_b[t] += b . tokens[t]. The first-level cache gives a vector a
// cycle, in which a product of two is finished too, so each vector of activations serves two rows.
template <int kTokens>
[[gnu::always_inline]] inline void AddPairOfCodes(const WeightBlock& a, const WeightBlock& b,
                                                  const ActivationBlock* tokens, __m512i* dots_a,
                                                  __m512i* dots_b) {
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    AddProducts(a.codes0, tokens[t].codes0, dots_a[t]);
    AddProducts(b.codes0, tokens[t].codes0, dots_b[t]);
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    AddProducts(a.codes1, tokens[t].codes1, dots_a[t]);
    AddProducts(b.codes1, tokens[t].codes1, dots_b[t]);
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    AddProducts(a.codes2, tokens[t].codes2, dots_a[t]);
    AddProducts(b.codes2, tokens[t].codes2, dots_b[t]);
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    AddProducts(a.codes3, tokens[t].codes3, dots_a[t]);
    AddProducts(b.codes3, tokens[t].codes3, dots_b[t]);
  }
}

// A value that two rows need, read once: GCC would read it again for the second.
template <class Vector>
[[gnu::always_inline]] inline Vector ReadOnce(Vector value) {
  asm("" : "+v"(value));
  return value;
}

// sums_a[t] += a . tokens[t], sums_b[t] += b . tokens[t], where `add` adds to their dots.
template <class Codes, int kTokens, class Add>
[[gnu::always_inline]] inline void AddPair(const WeightBlock& a, const WeightBlock& b,
                                           const ActivationBlock* tokens, Accumulator* sums_a,
                                           Accumulator* sums_b, const Add& add) {
  __m512i dots_a[kTokens];
  __m512i dots_b[kTokens];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    dots_a[t] = Codes::kBias == 0 ? _mm512_setzero_si512() : ReadOnce(tokens[t].bias);
    dots_b[t] = dots_a[t];
  }
  add(dots_a, dots_b);
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    const __m512 scales = ReadOnce(tokens[t].scales);
    const __m512& sums = tokens[t].sums;
    sums_a[t] = AddScaled<Codes>(a, scales, sums, dots_a[t], sums_a[t]);
    sums_b[t] = AddScaled<Codes>(b, scales, sums, dots_b[t], sums_b[t]);
  }
}

template <class Codes, int kTokens>
[[gnu::always_inline]] inline void MultiplyAddPair(const WeightBlock& a, const WeightBlock& b,
                                                   const ActivationBlock* tokens,
                                                   Accumulator* sums_a, Accumulator* sums_b) {
  AddPair<Codes, kTokens>(
      a, b, tokens, sums_a,
      sums_b, [&](__m512i * dots_a, __m512i * dots_b) __attribute__((always_inline)) {
        AddPairOfCodes<kTokens>(a, b, tokens, dots_a, dots_b);
      });
}

// Adds the products of the units that begin with a and b and each token to sums_a[t] and sums_b[t].
template <class Codes, int kTokens>
[[gnu::always_inline]] inline void MultiplyAddPairOfUnits(const WeightBlock* a,
                                                          const WeightBlock* b,
                                                          const ActivationBlock* tokens,
                                                          int64_t stride, Accumulator* sums_a,
                                                          Accumulator* sums_b) {
  if constexpr (Codes::kMeet == Meet::kInDots) {
    MultiplyAddUnit<Codes, kTokens>(a, tokens, stride, sums_a);
    MultiplyAddUnit<Codes, kTokens>(b, tokens, stride, sums_b);
  } else {
    AddPair<Codes, kTokens>(
        *a, *b, tokens, sums_a,
        sums_b, [&](__m512i * dots_a, __m512i * dots_b) __attribute__((always_inline)) {
          AddPairOfCodes<kTokens>(a[0], b[0], tokens, dots_a, dots_b);
          AddPairOfCodes<kTokens>(a[1], b[1], tokens + stride, dots_a, dots_b);
        });
  }
}

template <class Unpacker, int /*kTokens*/>
using UnpackerFor = Unpacker;

// lanes 2p and 2p + 1 = pair p
inline __m512i TwoLanesPerPair() {
  return _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
}

// 64-bit piece s of the four of each of eight pairs.
[[gnu::always_inline]] inline __m512i PieceOfPairs(__m512i v0, __m512i v1, __m512i v2, __m512i v3,
                                                   long long s) {
  const __m512i order = _mm512_setr_epi64(s, 4 + s, 8 + s, 12 + s, s, 4 + s, 8 + s, 12 + s);
  return _mm512_mask_blend_epi64(0xf0, _mm512_permutex2var_epi64(v0, order, v1),
                                 _mm512_permutex2var_epi64(v2, order, v3));
}

// From 256 consecutive codes to LaneOrder::kPairs.
template <class Block>
[[gnu::always_inline]] inline void TakePairs(__m512i v0, __m512i v1, __m512i v2, __m512i v3,
                                             Block& out) {
  out.codes0 = PieceOfPairs(v0, v1, v2, v3, 0);
  out.codes1 = PieceOfPairs(v0, v1, v2, v3, 1);
  out.codes2 = PieceOfPairs(v0, v1, v2, v3, 2);
  out.codes3 = PieceOfPairs(v0, v1, v2, v3, 3);
}

// Lane 4q + v takes piece s, 0 or 1, of half q % 2 of pair 2v + q / 2, which lies in lane 4v + q /
// 2 * 2 + s of `low` (first half) or of `high`.
[[gnu::always_inline]] inline __m512i GroupsOfPairs(__m512i low, __m512i high, int s) {
  const __m512i lanes =
      _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 2, 6, 10, 14, 18, 22, 26, 30);
  return _mm512_permutex2var_epi32(low, _mm512_add_epi32(lanes, _mm512_set1_epi32(s)), high);
}

// Turns a block into LaneOrder::kGroups, which panels are packed from.
template <class Codes>
inline void PutInGroupOrder(WeightBlock& block) {
  if constexpr (Codes::kOrder != LaneOrder::kGroups) {
    const __m512i lane = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 2, 6, 10, 14, 2, 6, 10, 14);
    const __m512i codes[4] = {block.codes0, block.codes1, block.codes2, block.codes3};
    block.codes0 = GroupsOfPairs(codes[0], codes[2], 0);
    block.codes1 = GroupsOfPairs(codes[0], codes[2], 1);
    block.codes2 = GroupsOfPairs(codes[1], codes[3], 0);
    block.codes3 = GroupsOfPairs(codes[1], codes[3], 1);
    block.scales = _mm512_permutexvar_ps(lane, block.scales);
    if constexpr (Codes::kHasOffsets) {
      const __m512i odd = _mm512_or_si512(lane, _mm512_set1_epi32(1));
      block.offsets = _mm512_permutexvar_ps(odd, block.offsets);
    }
  }
}
