// Q4_K and Q5_K for AVX-512: quant/formats/q4_k.h, quant/formats/q5_k.h. Included inside the target
// region of matmul.cpp.

// The 4-bit codes of a block in LaneOrder::kPairs: run c of 32 bytes holds pair 2c in its low and
// pair 2c + 1 in its high halves.
[[gnu::always_inline]] inline void UnpackNibbleRuns(const uint8_t* codes, WeightBlock& out) {
  const __m512i low = _mm512_loadu_si512(codes);
  const __m512i high = _mm512_loadu_si512(codes + 64);
  const auto piece = [&](long long s) __attribute__((always_inline)) {
    const __m512i order = _mm512_setr_epi64(s, s, 4 + s, 4 + s, 8 + s, 8 + s, 12 + s, 12 + s);
    const __m512i shift = _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4);
    const __m512i both = _mm512_permutex2var_epi64(low, order, high);
    return _mm512_and_si512(_mm512_srlv_epi64(both, shift), _mm512_set1_epi8(0x0f));
  };
  out.codes0 = piece(0);
  out.codes1 = piece(1);
  out.codes2 = piece(2);
  out.codes3 = piece(3);
}

// Sets bit 4 of the codes, where byte b, bit p of the 32 bytes of high bits belongs to value b of
// pair p.
[[gnu::always_inline]] inline void AddFifthBitRuns(const uint8_t* bytes, WeightBlock& out) {
  const auto add = [&](__m512i codes, int s) __attribute__((always_inline)) {
    long long eight;
    std::memcpy(&eight, bytes + 8 * s, sizeof(eight));
    const __m512i rotate = _mm512_setr_epi64(4, 3, 2, 1, 0, 63, 62, 61);
    return OrMasked(codes, _mm512_rolv_epi64(_mm512_set1_epi64(eight), rotate), 0x10);
  };
  out.codes0 = add(out.codes0, 0);
  out.codes1 = add(out.codes1, 1);
  out.codes2 = add(out.codes2, 2);
  out.codes3 = add(out.codes3, 3);
}

// quant/formats/scale_min_pairs.h: scale and minimum of pair p come to lanes 2p and 2p + 1, next to
// each other as d and dmin are in the block.
template <class Block>
[[gnu::always_inline]] inline void UnpackPairs(const Block& block, WeightBlock& out) {
  static_assert(offsetof(Block, d) == 0 && offsetof(Block, dmin) == 2 && sizeof(Block) >= 20);
  const __m128i words = LoadBytes16(block.pairs.bytes);  // the last one is not theirs
  const __m128i low = _mm_and_si128(
      _mm_srlv_epi32(_mm_shuffle_epi32(words, _MM_SHUFFLE(2, 1, 2, 0)), _mm_setr_epi32(0, 0, 0, 4)),
      _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
  const __m128i high = _mm_srli_epi32(_mm_shuffle_epi32(words, _MM_SHUFFLE(1, 1, 0, 0)), 2);
  const __m128i scales_mins = _mm_ternarylogic_epi32(
      low, high, _mm_setr_epi32(0, 0x30303030, 0, 0x30303030), 0xf8);  // low | (high & mask)
  const __m128i side_by_side = _mm_shuffle_epi8(
      scales_mins, _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
  int factors;
  std::memcpy(&factors, &block, sizeof(factors));
  out.offsets = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(side_by_side)),
                              _mm512_cvtph_ps(_mm256_set1_epi32(factors)));
  out.scales = _mm512_moveldup_ps(out.offsets);
}

struct UnpackQ4_K {
  using Rows = RowsOfQ4_K;
  using Codes = CodeTraits<0, true, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = sizeof(quant::Q4_K::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q4_K::Block*>(bytes);
    WeightBlock out;
    UnpackNibbleRuns(block.codes, out);
    UnpackPairs(block, out);
    return out;
  }
};

struct UnpackQ5_K {
  using Rows = RowsOfQ5_K;
  using Codes = CodeTraits<0, true, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = sizeof(quant::Q5_K::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q5_K::Block*>(bytes);
    WeightBlock out;
    UnpackNibbleRuns(block.low, out);
    AddFifthBitRuns(block.high, out);
    UnpackPairs(block, out);
    return out;
  }
};
