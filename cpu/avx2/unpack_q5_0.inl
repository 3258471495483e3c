// Q5_0 and Q5_1 for AVX2: quant/formats/q5_0.h, quant/formats/q5_1.h. Included inside the target
// region of matmul.cpp, after unpack_q4_0.inl.

// Bits [16k, 16k + 16) of a word per half as bit 4 of its bytes.
[[gnu::always_inline]] inline __m256i FifthBits(__m256i words, int k) {
  const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0, 0x0101010101010101);
  const __m256i from = _mm256_add_epi8(spread, _mm256_set1_epi8(static_cast<char>(2 * k)));
  const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i found = _mm256_and_si256(_mm256_shuffle_epi8(words, from), bits);
  return _mm256_and_si256(_mm256_cmpeq_epi8(found, bits), _mm256_set1_epi8(0x10));
}

// The codes of eight blocks.
template <class Block>
[[gnu::always_inline]] inline void UnpackFiveBitBlocks(const Block* blocks, WeightBlock& out) {
  UnpackNibbleBlocks(blocks, &Block::low, out);
  for (int i = 0; i < 8; i += 2) {
    int even;
    int odd;
    std::memcpy(&even, blocks[i].high, sizeof(even));
    std::memcpy(&odd, blocks[i + 1].high, sizeof(odd));
    const __m256i words = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_cvtsi32_si128(even)),
                                                  _mm_cvtsi32_si128(odd), 1);
    out.codes[i] = _mm256_or_si256(out.codes[i], FifthBits(words, 0));
    out.codes[i + 1] = _mm256_or_si256(out.codes[i + 1], FifthBits(words, 1));
  }
}

struct UnpackQ5_0 {
  using Rows = RowsOfQ5_0;
  using Codes = CodeTraits<16, 31, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q5_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    WeightBlock out;
    UnpackFiveBitBlocks(reinterpret_cast<const quant::Q5_0::Block*>(bytes), out);
    out.scales[0] = LoadHalvesOfPairs<sizeof(quant::Q5_0::Block)>(bytes);
    return out;
  }
};

struct UnpackQ5_1 {
  using Rows = RowsOfQ5_1;
  using Codes = CodeTraits<0, 31, true, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q5_1::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q5_1::Block);
    WeightBlock out;
    UnpackFiveBitBlocks(reinterpret_cast<const quant::Q5_1::Block*>(bytes), out);
    out.scales[0] = LoadHalvesOfPairs<kStride>(bytes);
    out.offsets[0] = Negate(LoadHalvesOfPairs<kStride>(bytes + offsetof(quant::Q5_1::Block, m)));
    return out;
  }
};
