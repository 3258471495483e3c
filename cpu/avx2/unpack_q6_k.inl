// Q6_K for AVX2: quant/formats/q6_k.h. Included inside the target region of matmul.cpp.

struct UnpackQ6_K {
  using Rows = RowsOfQ6_K;
  using Codes = CodeTraits<32, 63, false>;
  static constexpr int64_t kBytes = sizeof(quant::Q6_K::Block);
  static constexpr int kScaleValues = 16;

  // Bits 2 * run and 2 * run + 1 of every byte of `high` as bits 4 and 5 of the code.
  [[gnu::always_inline]] static __m256i AddHighBits(__m256i codes, __m256i high, int run) {
    const __m256i bits = _mm256_and_si256(_mm256_srli_epi16(high, 2 * run), _mm256_set1_epi8(3));
    return _mm256_or_si256(codes, _mm256_slli_epi16(bits, 4));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q6_K::Block*>(bytes);
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const __m256i low0 = LoadBytes32(block.low + 64 * h);
      const __m256i low1 = LoadBytes32(block.low + 64 * h + 32);
      const __m256i high = LoadBytes32(block.high + 32 * h);
      TransposeCodes(AddHighBits(LowNibbles(low0), high, 0), AddHighBits(LowNibbles(low1), high, 1),
                     AddHighBits(HighNibbles(low0), high, 2),
                     AddHighBits(HighNibbles(low1), high, 3), out.codes + 4 * h);
    }
    ScaleGroups(LoadBytes16(block.scales), block.d, out.scales);
    return out;
  }
};
