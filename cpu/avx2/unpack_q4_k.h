// Q4_K and Q5_K for AVX2: quant/q4_k.h, quant/q5_k.h. Included inside the target region of
// matmul.cpp.

// The eight bytes, one per pair of groups, times a factor.
[[gnu::always_inline]] inline void ScalePairs(uint64_t bytes, quant::PackedHalf factor,
                                              __m256* out) {
  const __m128i values = _mm_cvtsi64_si128(static_cast<long long>(bytes));
  const __m256 pairs =
      _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(values)), BroadcastHalf(factor));
  out[0] = _mm256_permute2f128_ps(pairs, pairs, 0x00);
  out[1] = _mm256_permute2f128_ps(pairs, pairs, 0x11);
}

// quant/scale_min_pairs.h, four pairs at a time in the bytes of a word.
template <class Block>
[[gnu::always_inline]] inline void UnpackPairs(const Block& block, WeightBlock& out) {
  uint32_t words[3];
  std::memcpy(words, block.pairs.bytes, sizeof(words));
  const uint32_t high_scales = (words[2] & 0x0f0f0f0f) | (words[0] >> 2 & 0x30303030);
  const uint32_t high_mins = (words[2] >> 4 & 0x0f0f0f0f) | (words[1] >> 2 & 0x30303030);
  ScalePairs((words[0] & 0x3f3f3f3f) | uint64_t{high_scales} << 32, block.d, out.scales);
  ScalePairs((words[1] & 0x3f3f3f3f) | uint64_t{high_mins} << 32, block.dmin, out.offsets);
}

struct UnpackQ4_K {
  using Codes = CodeTraits<0, 15, true>;
  static constexpr int64_t kBytes = sizeof(quant::Q4_K::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q4_K::Block*>(bytes);
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const __m256i run0 = LoadBytes32(block.codes + 64 * h);
      const __m256i run1 = LoadBytes32(block.codes + 64 * h + 32);
      TransposeCodes(LowNibbles(run0), HighNibbles(run0), LowNibbles(run1), HighNibbles(run1),
                     out.codes + 4 * h);
    }
    UnpackPairs(block, out);
    return out;
  }
};

struct UnpackQ5_K {
  using Codes = CodeTraits<0, 31, true>;
  static constexpr int64_t kBytes = sizeof(quant::Q5_K::Block);
  static constexpr int kScaleValues = 32;

  // Bit `pair` of every byte of `high` as bit 4 of the code.
  [[gnu::always_inline]] static __m256i AddHighBit(__m256i codes, __m256i high, int pair) {
    const __m256i bit = _mm256_and_si256(_mm256_srli_epi16(high, pair), _mm256_set1_epi8(1));
    return _mm256_or_si256(codes, _mm256_slli_epi16(bit, 4));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q5_K::Block*>(bytes);
    const __m256i high = LoadBytes32(block.high);
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const __m256i run0 = LoadBytes32(block.low + 64 * h);
      const __m256i run1 = LoadBytes32(block.low + 64 * h + 32);
      TransposeCodes(AddHighBit(LowNibbles(run0), high, 4 * h),
                     AddHighBit(HighNibbles(run0), high, 4 * h + 1),
                     AddHighBit(LowNibbles(run1), high, 4 * h + 2),
                     AddHighBit(HighNibbles(run1), high, 4 * h + 3), out.codes + 4 * h);
    }
    UnpackPairs(block, out);
    return out;
  }
};
