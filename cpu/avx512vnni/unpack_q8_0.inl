// Q8_0 for AVX-512: quant/q8_0.h. Included inside the target region of matmul.cpp.

// Signed codes as unsigned ones.
[[gnu::always_inline]] inline __m512i Unsigned(__m512i codes) {
  return _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
}

struct RowsOfQ8_0 : SmallBlockRows<RowsOfQ8_0>, HalfScales {
  using Format = quant::Q8_0;
  struct Codes : RowCodes {
    static constexpr int kBits = 8;
    static constexpr int kBias = 128;
    static constexpr bool kShortScales = true;
  };
  static constexpr int64_t kStripTokens = 9;
  static constexpr int kLowBits = 8;
  static constexpr int kLow = offsetof(Format::Block, codes);
  static __m512i CodesOf(__m512i bits) { return Unsigned(bits); }
};

struct UnpackQ8_0 {
  using Rows = RowsOfQ8_0;
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q8_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static __m512i TwoBlocks(const quant::Q8_0::Block* blocks) {
    return Unsigned(Join(LoadBytes32(blocks[0].codes), LoadBytes32(blocks[1].codes)));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::Q8_0::Block*>(bytes);
    WeightBlock out;
    TransposeCodes(TwoBlocks(blocks), TwoBlocks(blocks + 2), TwoBlocks(blocks + 4),
                   TwoBlocks(blocks + 6), out);
    out.scales = LoadPairHalves<sizeof(*blocks)>(bytes);
    return out;
  }
};
