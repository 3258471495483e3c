// Formats of 32-value blocks with 4-bit codes: quant/formats/q4_0.h, quant/formats/q4_1.h. Included
// inside the target region of matmul.cpp.
//
// Byte b of a block's sixteen holds the codes of values b and b + 16.

struct UnpackQ4_0 {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q4_0::Block);

  // A code less 8 is the nibble with its upper bit inverted, as a signed number. It stays in the
  // upper half of a byte, where it is 16 times too large; the scale makes up for that, and
  // everything is exact.
  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q4_0::Block);
    const auto* blocks = reinterpret_cast<const quant::Q4_0::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      const uint8x16_t nibbles = veorq_u8(vld1q_u8(blocks[b].codes), vdupq_n_u8(0x88));
      out.codes[2 * b] = vreinterpretq_s8_u8(vshlq_n_u8(nibbles, 4));
      out.codes[2 * b + 1] = vreinterpretq_s8_u8(vandq_u8(nibbles, vdupq_n_u8(0xf0)));
    }
    for (int v = 0; v < 2; ++v) {
      out.scales[v] = vmulq_n_f32(LoadHalves<kStride>(bytes + 4 * v * kStride), 1.0f / 16);
    }
    return out;
  }
};

struct UnpackQ4_1 {
  using Codes = CodeTraits<32, true>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q4_1::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q4_1::Block);
    constexpr int kMinimum = offsetof(quant::Q4_1::Block, m);
    const auto* blocks = reinterpret_cast<const quant::Q4_1::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      const uint8x16_t nibbles = vld1q_u8(blocks[b].codes);
      out.codes[2 * b] = LowNibbles(nibbles);
      out.codes[2 * b + 1] = HighNibbles(nibbles);
    }
    for (int v = 0; v < 2; ++v) {
      const std::byte* half = bytes + 4 * v * kStride;
      out.scales[v] = LoadHalves<kStride>(half);
      out.offsets[v] = vnegq_f32(LoadHalves<kStride>(half + kMinimum));
    }
    return out;
  }
};
