// Q4_K and Q5_K for AVX2: quant/formats/q4_k.h, quant/formats/q5_k.h. Included inside the target
// region of matmul.cpp.

// The eight bytes, one per pair of groups, times a factor, in LaneOrder::kPairs.
[[gnu::always_inline]] inline __m256 ScalePairs(uint64_t bytes, quant::PackedHalf factor) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m128i values = _mm_cvtsi64_si128(static_cast<long long>(bytes));
  const __m256i pairs = _mm256_cvtepu8_epi32(_mm_shuffle_epi8(values, order));
  return _mm256_mul_ps(_mm256_cvtepi32_ps(pairs), BroadcastHalf(factor));
}

// quant/formats/scale_min_pairs.h, four pairs at a time in the bytes of a word.
template <class Block>
[[gnu::always_inline]] inline void UnpackPairs(const Block& block, WeightBlock& out) {
  uint32_t words[3];
  std::memcpy(words, block.pairs.bytes, sizeof(words));
  const uint32_t high_scales = (words[2] & 0x0f0f0f0f) | (words[0] >> 2 & 0x30303030);
  const uint32_t high_mins = (words[2] >> 4 & 0x0f0f0f0f) | (words[1] >> 2 & 0x30303030);
  out.scales[0] = ScalePairs((words[0] & 0x3f3f3f3f) | uint64_t{high_scales} << 32, block.d);
  out.offsets[0] = ScalePairs((words[1] & 0x3f3f3f3f) | uint64_t{high_mins} << 32, block.dmin);
}

// Sixteen bytes whose low nibbles belong to an even pair, the high ones to the next: one vector of
// LaneOrder::kPairs.
[[gnu::always_inline]] inline __m256i NibblesOfPairs(const void* p) {
  return LowNibbles(ShiftHalves(LoadTwice(p), 0, 4));
}

struct UnpackQ4_K {
  using Rows = RowsOfQ4_K;
  using Codes = CodeTraits<0, 15, true, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = sizeof(quant::Q4_K::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q4_K::Block*>(bytes);
    WeightBlock out;
    for (int i = 0; i < 8; ++i) out.codes[i] = NibblesOfPairs(block.codes + 16 * i);
    UnpackPairs(block, out);
    return out;
  }
};

struct UnpackQ5_K {
  using Rows = RowsOfQ5_K;
  using Codes = CodeTraits<0, 31, true, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = sizeof(quant::Q5_K::Block);
  static constexpr int kScaleValues = 32;

  // Bit `pair` of every byte of `high` as bit 4 of the code, and of the next pair in the upper
  // half.
  [[gnu::always_inline]] static __m256i AddHighBit(__m256i codes, __m256i high, int pair) {
    const __m256i bit = _mm256_and_si256(ShiftHalves(high, pair, pair + 1), _mm256_set1_epi8(1));
    return _mm256_or_si256(codes, _mm256_slli_epi16(bit, 4));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q5_K::Block*>(bytes);
    const __m256i high[2] = {LoadTwice(block.high), LoadTwice(block.high + 16)};
    WeightBlock out;
    for (int i = 0; i < 8; ++i) {
      out.codes[i] = AddHighBit(NibblesOfPairs(block.low + 16 * i), high[i % 2], i / 2 * 2);
    }
    UnpackPairs(block, out);
    return out;
  }
};
