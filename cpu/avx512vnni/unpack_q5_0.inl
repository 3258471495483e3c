// Q5_0 and Q5_1 for AVX-512: quant/formats/q5_0.h, quant/formats/q5_1.h. Included inside the target
// region of matmul.cpp, after unpack_q4_0.inl.

// The words of the high bits of eight blocks, in lane order: block 2v + q / 2.
template <int kStride>
[[gnu::always_inline]] inline __m512i LoadHighWords(const uint8_t* high) {
  int words[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&words[i], high + i * kStride, sizeof(int));
  const __m128i even = _mm_setr_epi32(words[0], words[2], words[4], words[6]);
  const __m128i odd = _mm_setr_epi32(words[1], words[3], words[5], words[7]);
  return Join(even, even, odd, odd);
}

// codes + 16 * bits [4s, 4s + 4) of a group's 16 high bits.
[[gnu::always_inline]] inline __m512i AddFifthBits(__m512i codes, __m512i words, int s) {
  const __m512i odd_groups =
      _mm512_setr_epi32(0, 0, 0, 0, 16, 16, 16, 16, 0, 0, 0, 0, 16, 16, 16, 16);
  const __m512i shift = _mm512_add_epi32(odd_groups, _mm512_set1_epi32(4 * s));
  return AddFourBits(codes, _mm512_srlv_epi32(words, shift));
}

template <int kStride>
[[gnu::always_inline]] inline void UnpackFiveBitBlocks(const uint8_t* low, const uint8_t* high,
                                                       WeightBlock& out) {
  UnpackNibbleBlocks<kStride>(low, out);
  const __m512i words = LoadHighWords<kStride>(high);
  out.codes0 = AddFifthBits(out.codes0, words, 0);
  out.codes1 = AddFifthBits(out.codes1, words, 1);
  out.codes2 = AddFifthBits(out.codes2, words, 2);
  out.codes3 = AddFifthBits(out.codes3, words, 3);
}

struct UnpackQ5_0 {
  using Rows = RowsOfQ5_0;
  using Codes = CodeTraits<16, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q5_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q5_0::Block);
    const auto& block = *reinterpret_cast<const quant::Q5_0::Block*>(bytes);
    WeightBlock out;
    UnpackFiveBitBlocks<kStride>(block.low, block.high, out);
    out.scales = LoadPairHalves<kStride>(bytes);
    return out;
  }
};

struct UnpackQ5_1 {
  using Rows = RowsOfQ5_1;
  using Codes = CodeTraits<0, true>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q5_1::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q5_1::Block);
    const auto& block = *reinterpret_cast<const quant::Q5_1::Block*>(bytes);
    WeightBlock out;
    UnpackFiveBitBlocks<kStride>(block.low, block.high, out);
    out.scales = LoadPairHalves<kStride>(bytes);
    out.offsets = Negate(LoadPairHalves<kStride>(bytes + offsetof(quant::Q5_1::Block, m)));
    return out;
  }
};
