// Q4_0 and Q4_1 for AVX-512: quant/q4_0.h, quant/q4_1.h. Included inside the target region of
// matmul.cpp.

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

struct UnpackQ4_0 {
  using Codes = CodeTraits<8, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q4_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    WeightBlock out;
    UnpackNibbleBlocks<sizeof(quant::Q4_0::Block)>(
        reinterpret_cast<const quant::Q4_0::Block*>(bytes)->codes, out);
    out.scales = LoadPairHalves<sizeof(quant::Q4_0::Block)>(bytes);
    return out;
  }
};

struct UnpackQ4_1 {
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
