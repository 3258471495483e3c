// IQ4_NL and IQ4_XS for NEON: quant/iq4_nl.h, quant/iq4_xs.h. Included inside the target region of
// matmul.cpp.

// 32 values from sixteen bytes of codes.
[[gnu::always_inline]] inline void LookUpLevels(const uint8_t* codes, int8x16_t* out) {
  const int8x16_t levels = vld1q_s8(quant::kIq4Levels);
  const uint8x16_t nibbles = vld1q_u8(codes);
  out[0] = vqtbl1q_s8(levels, vandq_u8(nibbles, vdupq_n_u8(0x0f)));
  out[1] = vqtbl1q_s8(levels, vshrq_n_u8(nibbles, 4));
}

struct UnpackIQ4_NL {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::IQ4_NL::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::IQ4_NL::Block);
    const auto* blocks = reinterpret_cast<const quant::IQ4_NL::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) LookUpLevels(blocks[b].codes, out.codes + 2 * b);
    for (int v = 0; v < 2; ++v) out.scales[v] = LoadHalves<kStride>(bytes + 4 * v * kStride);
    return out;
  }
};

struct UnpackIQ4_XS {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ4_XS::Block);

  // Eight 6-bit scales less 32: four bits of each in a word of nibbles, two in one of pairs.
  [[gnu::always_inline]] static int16x8_t Scales(const quant::IQ4_XS::Block& block) {
    uint32_t low;
    uint16_t high;
    std::memcpy(&low, block.scales_low, sizeof(low));
    std::memcpy(&high, block.scales_high, sizeof(high));
    const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(low));
    const uint8x8_t nibbles = vzip1_u8(vand_u8(bytes, vdup_n_u8(0x0f)), vshr_n_u8(bytes, 4));
    // To the right by 2k for scale k, then to bits 4 and 5.
    const int16_t kShifts[] = {4, 2, 0, -2, -4, -6, -8, -10};
    const uint16x8_t shifted = vshlq_u16(vdupq_n_u16(high), vld1q_s16(kShifts));
    const uint16x8_t scales = vorrq_u16(vmovl_u8(nibbles), vandq_u16(shifted, vdupq_n_u16(0x30)));
    return vsubq_s16(vreinterpretq_s16_u16(scales), vdupq_n_s16(32));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ4_XS::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) LookUpLevels(block.codes + 16 * b, out.codes + 2 * b);
    ScaleEight(Scales(block), BroadcastHalf(block.d), out.scales);
    return out;
  }
};
