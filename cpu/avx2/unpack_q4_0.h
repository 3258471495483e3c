// Q4_0 and Q4_1 for AVX2: quant/q4_0.h, quant/q4_1.h. Included inside the target region of
// matmul.cpp.

// The codes of eight blocks.
template <class Block>
[[gnu::always_inline]] inline void UnpackNibbleBlocks(const Block* blocks, WeightBlock& out) {
  for (int h = 0; h < 2; ++h) {
    const Block* half = blocks + 4 * h;
    TransposeCodes(NibblesOf16(half[0].codes), NibblesOf16(half[1].codes),
                   NibblesOf16(half[2].codes), NibblesOf16(half[3].codes), out.codes + 4 * h);
  }
}

struct UnpackQ4_0 {
  using Codes = CodeTraits<8, 15, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q4_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q4_0::Block);
    WeightBlock out;
    UnpackNibbleBlocks(reinterpret_cast<const quant::Q4_0::Block*>(bytes), out);
    for (int h = 0; h < 2; ++h) out.scales[h] = LoadPairHalves<kStride>(bytes + 4 * h * kStride);
    return out;
  }
};

struct UnpackQ4_1 {
  using Codes = CodeTraits<0, 15, true>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q4_1::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q4_1::Block);
    constexpr int kMinimum = offsetof(quant::Q4_1::Block, m);
    WeightBlock out;
    UnpackNibbleBlocks(reinterpret_cast<const quant::Q4_1::Block*>(bytes), out);
    for (int h = 0; h < 2; ++h) {
      const std::byte* half = bytes + 4 * h * kStride;
      out.scales[h] = LoadPairHalves<kStride>(half);
      out.offsets[h] = Negate(LoadPairHalves<kStride>(half + kMinimum));
    }
    return out;
  }
};
