// Q4_0 and Q4_1 for AVX2: quant/formats/q4_0.h, quant/formats/q4_1.h. Included inside the target
// region of matmul.cpp.

// The 4-bit codes of eight blocks.
template <class Block>
[[gnu::always_inline]] inline void UnpackNibbleBlocks(const Block* blocks,
                                                      uint8_t (Block::*codes)[16],
                                                      WeightBlock& out) {
  for (int i = 0; i < 8; i += 2) {
    const __m256i even = _mm256_castsi128_si256(LoadBytes16(blocks[i].*codes));
    const __m256i bytes = _mm256_inserti128_si256(even, LoadBytes16(blocks[i + 1].*codes), 1);
    out.codes[i] = LowNibbles(bytes);
    out.codes[i + 1] = HighNibbles(bytes);
  }
}

struct UnpackQ4_0 {
  using Rows = RowsOfQ4_0;
  using Codes = CodeTraits<8, 15, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q4_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    WeightBlock out;
    using Block = quant::Q4_0::Block;
    UnpackNibbleBlocks(reinterpret_cast<const Block*>(bytes), &Block::codes, out);
    out.scales[0] = LoadHalvesOfPairs<sizeof(quant::Q4_0::Block)>(bytes);
    return out;
  }
};

struct UnpackQ4_1 {
  using Rows = RowsOfQ4_1;
  using Codes = CodeTraits<0, 15, true, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q4_1::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q4_1::Block);
    WeightBlock out;
    using Block = quant::Q4_1::Block;
    UnpackNibbleBlocks(reinterpret_cast<const Block*>(bytes), &Block::codes, out);
    out.scales[0] = LoadHalvesOfPairs<kStride>(bytes);
    out.offsets[0] = Negate(LoadHalvesOfPairs<kStride>(bytes + offsetof(quant::Q4_1::Block, m)));
    return out;
  }
};
