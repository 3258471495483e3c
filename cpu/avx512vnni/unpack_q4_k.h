// Q4_K and Q5_K for AVX-512: quant/q4_k.h, quant/q5_k.h. Included inside the target region of
// matmul.cpp.

// The 4-bit codes of a block: run v of 32 bytes holds groups 4v and 4v + 1 in its low and groups
// 4v + 2 and 4v + 3 in its high halves, so lane 4q + v takes half q % 2 of run v, shifted where
// q >= 2.
[[gnu::always_inline]] inline void UnpackNibbleRuns(const uint8_t* codes, WeightBlock& out) {
  const __m512i first = _mm512_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28, 0, 8, 16, 24, 4, 12, 20, 28);
  const __m512i shift = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
  PickNibbles(_mm512_loadu_si512(codes), _mm512_loadu_si512(codes + 64), first, shift, out);
}

// Eight bytes, one per pair of groups, times a factor, in lane order.
[[gnu::always_inline]] inline __m512 ScalePairs(uint64_t bytes, quant::PackedHalf factor) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7);
  const __m128i lanes = _mm_shuffle_epi8(_mm_cvtsi64_si128(static_cast<long long>(bytes)), order);
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(lanes)), BroadcastHalf(factor));
}

// quant/scale_min_pairs.h, four pairs at a time in the bytes of a word.
template <class Block>
[[gnu::always_inline]] inline void UnpackPairs(const Block& block, WeightBlock& out) {
  uint32_t words[3];
  std::memcpy(words, block.pairs.bytes, sizeof(words));
  const uint32_t high_scales = (words[2] & 0x0f0f0f0f) | (words[0] >> 2 & 0x30303030);
  const uint32_t high_mins = (words[2] >> 4 & 0x0f0f0f0f) | (words[1] >> 2 & 0x30303030);
  const uint64_t scales = (words[0] & 0x3f3f3f3f) | uint64_t{high_scales} << 32;
  const uint64_t mins = (words[1] & 0x3f3f3f3f) | uint64_t{high_mins} << 32;
  out.scales = ScalePairs(scales, block.d);
  out.offsets = ScalePairs(mins, block.dmin);
}

struct UnpackQ4_K {
  using Codes = CodeTraits<0, true>;
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
  using Codes = CodeTraits<0, true>;
  static constexpr int64_t kBytes = sizeof(quant::Q5_K::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q5_K::Block*>(bytes);
    WeightBlock out;
    UnpackNibbleRuns(block.low, out);
    AddHighBits<4>(block.high, out);
    UnpackPairs(block, out);
    return out;
  }
};
