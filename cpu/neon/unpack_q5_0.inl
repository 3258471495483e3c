// Q5_0 and Q5_1 for NEON: quant/formats/q5_0.h, quant/formats/q5_1.h. Included inside the target
// region of matmul.cpp.
//
// Byte b of a block's sixteen holds the lower bits of values b and b + 16; the fifth bits are those
// of a word.

// The 32 codes of a block; where the word has a one, the bits of kMask are set.
template <uint8_t kMask>
[[gnu::always_inline]] inline void TakeFiveBits(const uint8_t* low, uint32_t word, int8x16_t* out) {
  const uint8x16_t nibbles = vld1q_u8(low);
  const uint8x16_t high = vreinterpretq_u8_u32(vdupq_n_u32(word));
  out[0] = Insert(LowNibbles(nibbles), MaskOfBits(high, 0), kMask);
  out[1] = Insert(HighNibbles(nibbles), MaskOfBits(high, 2), kMask);
}

struct UnpackQ5_0 {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q5_0::Block);

  // A code less 16 is its nibble if the code has its fifth bit, and else its nibble with all four
  // upper bits set.
  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q5_0::Block);
    const auto* blocks = reinterpret_cast<const quant::Q5_0::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      uint32_t high;
      std::memcpy(&high, blocks[b].high, sizeof(high));
      TakeFiveBits<0xf0>(blocks[b].low, ~high, out.codes + 2 * b);
    }
    for (int v = 0; v < 2; ++v) out.scales[v] = LoadHalves<kStride>(bytes + 4 * v * kStride);
    return out;
  }
};

struct UnpackQ5_1 {
  using Codes = CodeTraits<32, true>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q5_1::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q5_1::Block);
    constexpr int kMinimum = offsetof(quant::Q5_1::Block, m);
    const auto* blocks = reinterpret_cast<const quant::Q5_1::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      uint32_t high;
      std::memcpy(&high, blocks[b].high, sizeof(high));
      TakeFiveBits<0x10>(blocks[b].low, high, out.codes + 2 * b);
    }
    for (int v = 0; v < 2; ++v) {
      const std::byte* half = bytes + 4 * v * kStride;
      out.scales[v] = LoadHalves<kStride>(half);
      out.offsets[v] = vnegq_f32(LoadHalves<kStride>(half + kMinimum));
    }
    return out;
  }
};
