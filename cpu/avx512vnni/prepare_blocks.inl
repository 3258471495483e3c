// Blocks of activations from records, in the orders of int8_blocks.inl. Included inside the target
// region of matmul.cpp, after that file.

// 256 activations whose codes and scales have been loaded in plain order; not yet the sums.
template <class Codes>
[[gnu::always_inline]] inline ActivationBlock ArrangeBlock(__m512i v0, __m512i v1, __m512i v2,
                                                           __m512i v3, __m256 scales) {
  constexpr bool kByPairs = Codes::kOrder == LaneOrder::kPairs;
  ActivationBlock block;
  if constexpr (kByPairs) {
    TakePairs(v0, v1, v2, v3, block);
  } else {
    TransposeCodes(v0, v1, v2, v3, block);
  }
  const __m512i bias = _mm512_set1_epi8(static_cast<char>(Codes::kBias));
  __m512i biased = _mm512_dpbusd_epi32(_mm512_setzero_si512(), bias, block.codes0);
  biased = _mm512_dpbusd_epi32(biased, bias, block.codes1);
  biased = _mm512_dpbusd_epi32(biased, bias, block.codes2);
  biased = _mm512_dpbusd_epi32(biased, bias, block.codes3);
  block.bias = _mm512_sub_epi32(_mm512_setzero_si512(), biased);
  block.scales = _mm512_permutexvar_ps(kByPairs ? TwoLanesPerPair() : PairOfLane(),
                                       _mm512_castps256_ps512(scales));
  return block;
}

// The sums of the groups, or of the pairs, of block `i` that lie within `count` columns.
template <class Codes>
[[gnu::always_inline]] inline __m512 ArrangeSums(const ActivationRow& row, int64_t i,
                                                 int64_t count) {
  if constexpr (Codes::kOrder == LaneOrder::kPairs) {
    const __mmask8 pairs = static_cast<__mmask8>((1u << (count / 32)) - 1);
    const __m256 sums = _mm256_maskz_loadu_ps(pairs, row.pair_sums + i * 8);
    return _mm512_maskz_permutexvar_ps(0xaaaa, TwoLanesPerPair(), _mm512_castps256_ps512(sums));
  } else {
    const __mmask16 groups = static_cast<__mmask16>((1u << (count / 16)) - 1);
    return _mm512_permutexvar_ps(GroupOfLane(), _mm512_maskz_loadu_ps(groups, row.sums + i * 16));
  }
}

// Up to 64 of `count` codes, the rest zero.
inline __m512i LoadCodes(const int8_t* codes, int64_t count) {
  if (count <= 0) return _mm512_setzero_si512();
  if (count >= 64) return _mm512_loadu_si512(codes);
  return _mm512_maskz_loadu_epi8((uint64_t{1} << count) - 1, codes);
}

// The first of `pairs` scales or sums of the pairs of two blocks, in the order of a unit's lanes.
template <LaneOrder kOrder>
[[gnu::always_inline]] inline __m512 ArrangePairs(const float* values, int64_t pairs) {
  const __mmask16 mask = static_cast<__mmask16>((1u << std::min<int64_t>(pairs, 16)) - 1);
  return _mm512_permutexvar_ps(PairOfUnitLane<kOrder>(), _mm512_maskz_loadu_ps(mask, values));
}

// Block `i` of a token; values from `cols` on are zero.
template <class Codes>
inline ActivationBlock PrepareBlock(const ActivationRow& row, int64_t cols, int64_t i) {
  const int64_t begin = i * 256;
  const int8_t* codes = row.codes + begin;
  const float* scales = row.scales + begin / 32;
  const int64_t count = std::min<int64_t>(cols - begin, 256);
  const __mmask8 pairs = static_cast<__mmask8>((1u << (count / 32)) - 1);
  ActivationBlock block =
      ArrangeBlock<Codes>(LoadCodes(codes, count), LoadCodes(codes + 64, count - 64),
                          LoadCodes(codes + 128, count - 128), LoadCodes(codes + 192, count - 192),
                          _mm256_maskz_loadu_ps(pairs, scales));
  if constexpr (Codes::kHasOffsets) block.sums = ArrangeSums<Codes>(row, i, count);
  return block;
}

// The unit of a token that begins with block `i`, to out[0] and out[stride].
template <class Codes>
inline void PrepareUnit(const ActivationRow& row, int64_t cols, int64_t i, ActivationBlock* out,
                        int64_t stride) {
  ActivationBlock a = PrepareBlock<Codes>(row, cols, i);
  ActivationBlock b = {};
  if ((i + 1) * 256 < cols) b = PrepareBlock<Codes>(row, cols, i + 1);
  const int64_t pairs = (cols - i * 256) / 32;
  a.scales = ArrangePairs<Codes::kOrder>(row.scales + i * 8, pairs);
  if constexpr (Codes::kHasOffsets) {
    a.sums = ArrangePairs<Codes::kOrder>(row.pair_sums + i * 8, pairs);
  }
  if constexpr (Codes::kMeet == Meet::kInCodes) {
    a.bias = _mm512_add_epi32(HalvesOf<Codes::kOrder, 0>(a.bias, b.bias),
                              HalvesOf<Codes::kOrder, 1>(a.bias, b.bias));
    JoinCodes<Codes::kOrder>(ActivationBlock(a), b, a, b);
  }
  new (out) ActivationBlock(a);
  new (out + stride) ActivationBlock(b);
}
