// Q8_0 for AVX-512: quant/formats/q8_0.h. Included inside the target region of matmul.cpp.

struct UnpackQ8_0 {
  using Rows = RowsOfQ8_0;
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q8_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static __m512i TwoBlocks(const quant::Q8_0::Block* blocks) {
    return StoreSigned(Join(LoadBytes32(blocks[0].codes), LoadBytes32(blocks[1].codes)));
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
