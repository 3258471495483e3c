// Q8_0 for AVX2: quant/formats/q8_0.h. Included inside the target region of matmul.cpp.

struct UnpackQ8_0 {
  using Rows = RowsOfQ8_0;
  using Codes = SignedCodes<false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q8_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::Q8_0::Block*>(bytes);
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const auto* half = blocks + 4 * h;
      TransposeCodes(StoreSigned(LoadBytes32(half[0].codes)),
                     StoreSigned(LoadBytes32(half[1].codes)),
                     StoreSigned(LoadBytes32(half[2].codes)),
                     StoreSigned(LoadBytes32(half[3].codes)), out.codes + 4 * h);
      out.scales[h] = LoadHalvesOfGroups<sizeof(*half)>(bytes + 4 * h * sizeof(*half));
    }
    return out;
  }
};
