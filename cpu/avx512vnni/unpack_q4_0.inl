// Q4_0 and Q4_1 for AVX-512: quant/formats/q4_0.h, quant/formats/q4_1.h. Included inside the target
// region of matmul.cpp.

// The 4-bit codes of eight blocks of kStride bytes; `codes` are the first block's. A block's bytes
// hold group 2b in their low and group 2b + 1 in their high halves, so lane 4q + v takes block 2v +
// q / 2, shifted where q is odd.
template <int kStride>
[[gnu::always_inline]] inline void UnpackNibbleBlocks(const uint8_t* codes, WeightBlock& out) {
  const __m512i low = Join(LoadBytes16(codes), LoadBytes16(codes + kStride),
                           LoadBytes16(codes + 2 * kStride), LoadBytes16(codes + 3 * kStride));
  const __m512i high = Join(LoadBytes16(codes + 4 * kStride), LoadBytes16(codes + 5 * kStride),
                            LoadBytes16(codes + 6 * kStride), LoadBytes16(codes + 7 * kStride));
  const __m512i first = _mm512_setr_epi32(0, 8, 16, 24, 0, 8, 16, 24, 4, 12, 20, 28, 4, 12, 20, 28);
  const __m512i shift = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4);
  PickNibbles(low, high, first, shift, out);
}

// Eight blocks of 18 bytes: the 4-bit codes, in LaneOrder::kPairs, and the scales.
[[gnu::always_inline]] inline void UnpackEighteenByteBlocks(const std::byte* bytes,
                                                            WeightBlock& out) {
  // 32-bit pieces of the codes of two blocks, 36 bytes apart, in each of two vectors.
  const __m512i even_pieces =
      _mm512_setr_epi32(0, 1, 2, 3, 9, 10, 11, 12, 16, 17, 18, 19, 25, 26, 27, 28);
  const __m512i odd_pieces =
      _mm512_setr_epi32(0, 1, 2, 3, 9, 10, 11, 12, 19, 20, 21, 22, 28, 29, 30, 31);
  const __m512i even = _mm512_permutex2var_epi32(_mm512_loadu_si512(bytes + 2), even_pieces,
                                                 _mm512_loadu_si512(bytes + 4 * 18 + 2));
  const __m512i odd = _mm512_permutex2var_epi32(_mm512_loadu_si512(bytes + 18 + 2), odd_pieces,
                                                _mm512_loadu_si512(bytes + 8 * 18 - 64));
  const __m512i first = _mm512_unpacklo_epi64(even, odd);
  const __m512i second = _mm512_unpackhi_epi64(even, odd);
  const __m512i mask = _mm512_set1_epi8(0x0f);
  out.codes0 = _mm512_and_si512(first, mask);
  out.codes1 = _mm512_and_si512(second, mask);
  out.codes2 = _mm512_and_si512(_mm512_srli_epi16(first, 4), mask);
  out.codes3 = _mm512_and_si512(_mm512_srli_epi16(second, 4), mask);
  const __m256i words = _mm256_setr_epi16(0, 0, 9, 9, 18, 18, 27, 27,  //
                                          32, 32, 41, 41, 50, 50, 59, 59);
  const __m512i halves = _mm512_permutex2var_epi16(
      _mm512_loadu_si512(bytes), _mm512_castsi256_si512(words), _mm512_loadu_si512(bytes + 4 * 18));
  out.scales = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
}

struct UnpackQ4_0 {
  using Rows = RowsOfQ4_0;
  using Codes = CodeTraits<8, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q4_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    static_assert(sizeof(quant::Q4_0::Block) == 18);
    WeightBlock out;
    UnpackEighteenByteBlocks(bytes, out);
    return out;
  }
};

struct UnpackQ4_1 {
  using Rows = RowsOfQ4_1;
  using Codes = CodeTraits<0, true>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q4_1::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kMinimum = offsetof(quant::Q4_1::Block, m);
    WeightBlock out;
    UnpackNibbleBlocks<sizeof(quant::Q4_1::Block)>(
        reinterpret_cast<const quant::Q4_1::Block*>(bytes)->codes, out);
    out.scales = LoadPairHalves<sizeof(quant::Q4_1::Block)>(bytes);
    out.offsets = Negate(LoadPairHalves<sizeof(quant::Q4_1::Block)>(bytes + kMinimum));
    return out;
  }
};
