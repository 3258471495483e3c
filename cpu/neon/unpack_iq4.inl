// Formats whose 4-bit codes stand for the levels of a table, for NEON: quant/formats/iq4_nl.h,
// quant/formats/iq4_xs.h, quant/formats/mxfp4.h, quant/formats/nvfp4.h. Included inside the target
// region of matmul.cpp.

// Looks up the levels of the low nibbles and of the high nibbles of sixteen bytes.
[[gnu::always_inline]] inline void LookUpLevels(const int8_t* table, const uint8_t* codes,
                                                int8x16_t* out) {
  const int8x16_t levels = vld1q_s8(table);
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
    for (int b = 0; b < 8; ++b) {
      LookUpLevels(quant::kIq4Levels, blocks[b].codes, out.codes + 2 * b);
    }
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
    for (int b = 0; b < 8; ++b) {
      LookUpLevels(quant::kIq4Levels, block.codes + 16 * b, out.codes + 2 * b);
    }
    ScaleEight(Scales(block), BroadcastHalf(block.d), out.scales);
    return out;
  }
};

struct UnpackMXFP4 {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::MXFP4::Block);

  // 2^(exponent - 128) of four blocks: the bits of the normal number, which are less than those of
  // the subnormal one exactly where the exponent is 0 or 1.
  [[gnu::always_inline]] static float32x4_t Scales(const quant::MXFP4::Block* blocks) {
    const int32x4_t exponents = {blocks[0].exponent, blocks[1].exponent, blocks[2].exponent,
                                 blocks[3].exponent};
    const int32x4_t one = vdupq_n_s32(1);
    const int32x4_t normal = vshlq_n_s32(vsubq_s32(exponents, one), 23);
    const int32x4_t subnormal = vshlq_n_s32(vaddq_s32(exponents, one), 21);
    return vreinterpretq_f32_s32(vmaxq_s32(normal, subnormal));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::MXFP4::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      LookUpLevels(quant::kE2M1Levels, blocks[b].codes, out.codes + 2 * b);
    }
    for (int v = 0; v < 2; ++v) out.scales[v] = Scales(blocks + 4 * v);
    return out;
  }
};

struct UnpackNVFP4 {
  using Codes = CodeTraits<16, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::NVFP4::Block);

  // quant::HalfOfUe4M3 of sixteen bytes: 2^119 brings the exponent's bias from 7 to that of a
  // float.
  [[gnu::always_inline]] static void TakeScales(uint8x16_t bytes, float32x4_t* out) {
    const uint8x16_t nan = vdupq_n_u8(0x7f);
    const uint8x16_t magnitudes = vbicq_u8(vandq_u8(bytes, nan), vceqq_u8(bytes, nan));
    // To the left by 20 in two steps.
    const uint16x8_t halves[] = {vshll_n_u8(vget_low_u8(magnitudes), 7),
                                 vshll_high_n_u8(magnitudes, 7)};
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const uint32x4_t first = vshll_n_u16(vget_low_u16(halves[h]), 13);
      const uint32x4_t second = vshll_high_n_u16(halves[h], 13);
      out[2 * h] = vmulq_n_f32(vreinterpretq_f32_u32(first), 0x1p119f);
      out[2 * h + 1] = vmulq_n_f32(vreinterpretq_f32_u32(second), 0x1p119f);
    }
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::NVFP4::Block*>(bytes);
    WeightBlock out;
    uint32_t scales[4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {  // two runs of 8 bytes
      int8x16_t halves[2];         // the first eight values of both, and the last
      LookUpLevels(quant::kE2M1Levels, blocks[i / 2].codes + 16 * (i % 2), halves);
      const int64x2_t first = vreinterpretq_s64_s8(halves[0]);
      const int64x2_t last = vreinterpretq_s64_s8(halves[1]);
      out.codes[2 * i] = vreinterpretq_s8_s64(vzip1q_s64(first, last));
      out.codes[2 * i + 1] = vreinterpretq_s8_s64(vzip2q_s64(first, last));
    }
    for (int b = 0; b < 4; ++b) std::memcpy(&scales[b], blocks[b].scales, sizeof(scales[b]));
    TakeScales(vreinterpretq_u8_u32(vld1q_u32(scales)), out.scales);
    return out;
  }
};
