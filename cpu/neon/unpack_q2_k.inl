// Q2_K, Q3_K and the ternary formats for NEON: quant/formats/q2_k.h, quant/formats/q3_k.h,
// quant/formats/tq2_0.h, quant/formats/tq1_0.h. Included inside the target region of matmul.cpp.

// 128 codes from a run of 32 bytes: bits 2k and 2k + 1 of byte b are value 32k + b.
[[gnu::always_inline]] inline void TakeTwoBits(const uint8_t* run, int8x16_t* out) {
  const uint8x16_t mask = vdupq_n_u8(3);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const uint8x16_t bytes = vld1q_u8(run + 16 * i);
    out[i] = vreinterpretq_s8_u8(vandq_u8(bytes, mask));
    out[2 + i] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(bytes, 2), mask));
    out[4 + i] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(bytes, 4), mask));
    out[6 + i] = vreinterpretq_s8_u8(vshrq_n_u8(bytes, 6));
  }
}

struct UnpackQ2_K {
  using Codes = CodeTraits<16, true>;
  static constexpr int64_t kBytes = sizeof(quant::Q2_K::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q2_K::Block*>(bytes);
    WeightBlock out;
    TakeTwoBits(block.codes, out.codes);
    TakeTwoBits(block.codes + 32, out.codes + 8);
    const uint8x16_t pairs = vld1q_u8(block.scales);
    ScaleSixteen(LowNibbles(pairs), BroadcastHalf(block.d), out.scales);
    ScaleSixteen(HighNibbles(pairs), BroadcastHalf(block.dmin), out.offsets);
    return out;
  }
};

struct UnpackQ3_K {
  using Codes = CodeTraits<16, false>;
  static constexpr int64_t kBytes = sizeof(quant::Q3_K::Block);

  // The 32 values of run kRun, whose third bits are bits kRun of `high`.
  template <int kRun>
  [[gnu::always_inline]] static void FinishRun(const uint8x16_t* high, int8x16_t* out) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      int8x16_t& codes = out[2 * kRun + i];
      codes = vsubq_s8(Insert(codes, Shift<2 - kRun>(high[i]), 4), vdupq_n_s8(4));
    }
  }

  // Sixteen 6-bit scales less 32: word k of the upper bits, to the right by 2k, belongs to four.
  [[gnu::always_inline]] static int8x16_t Scales(const quant::Q3_K::Block& block) {
    uint32_t word;
    std::memcpy(&word, block.scales_high, sizeof(word));
    const uint8x8_t bytes = vld1_u8(block.scales_low);
    const uint8x16_t low = vcombine_u8(vand_u8(bytes, vdup_n_u8(0x0f)), vshr_n_u8(bytes, 4));
    const int32_t kShifts[] = {4, 2, 0, -2};  // then to bits 4 and 5
    const uint32x4_t high = vshlq_u32(vdupq_n_u32(word), vld1q_s32(kShifts));
    return vsubq_s8(Insert(vreinterpretq_s8_u8(low), vreinterpretq_u8_u32(high), 0x30),
                    vdupq_n_s8(32));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q3_K::Block*>(bytes);
    const uint8x16_t high[] = {vld1q_u8(block.high), vld1q_u8(block.high + 16)};
    WeightBlock out;
    TakeTwoBits(block.low, out.codes);
    TakeTwoBits(block.low + 32, out.codes + 8);
    FinishRun<0>(high, out.codes);
    FinishRun<1>(high, out.codes);
    FinishRun<2>(high, out.codes);
    FinishRun<3>(high, out.codes);
    FinishRun<4>(high, out.codes);
    FinishRun<5>(high, out.codes);
    FinishRun<6>(high, out.codes);
    FinishRun<7>(high, out.codes);
    ScaleSixteen(Scales(block), BroadcastHalf(block.d), out.scales);
    return out;
  }
};

struct UnpackTQ2_0 {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = sizeof(quant::TQ2_0::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::TQ2_0::Block*>(bytes);
    WeightBlock out;
    TakeTwoBits(block.codes, out.codes);
    TakeTwoBits(block.codes + 32, out.codes + 8);
#pragma GCC unroll 16
    for (int8x16_t& codes : out.codes) codes = vsubq_s8(codes, vdupq_n_s8(1));
    for (int v = 0; v < 2; ++v) out.scales[v] = BroadcastHalf(block.d);
    return out;
  }
};

struct UnpackTQ1_0 {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = sizeof(quant::TQ1_0::Block);

  // A fraction's first digit less 1: three times the byte reaches 256 at 86 and 512 at 171.
  [[gnu::always_inline]] static int8x16_t FirstDigit(uint8x16_t fractions) {
    const uint8x16_t below_one = vcltq_u8(fractions, vdupq_n_u8(86));
    const uint8x16_t two = vcgeq_u8(fractions, vdupq_n_u8(171));
    return vreinterpretq_s8_u8(vsubq_u8(below_one, two));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr uint8_t kPowers[] = {1, 3, 9, 27, 81};
    const auto& block = *reinterpret_cast<const quant::TQ1_0::Block*>(bytes);
    const uint8x16_t digits[] = {vld1q_u8(block.digits), vld1q_u8(block.digits + 16),
                                 vld1q_u8(block.digits + 32)};
    WeightBlock out;
#pragma GCC unroll 5
    for (int n = 0; n < 5; ++n) {
      const uint8x16_t power = vdupq_n_u8(kPowers[n]);
      out.codes[2 * n] = FirstDigit(vmulq_u8(digits[0], power));
      out.codes[2 * n + 1] = FirstDigit(vmulq_u8(digits[1], power));
      out.codes[10 + n] = FirstDigit(vmulq_u8(digits[2], power));
    }
    // The last four bytes hold four digits each.
    uint32_t last;
    std::memcpy(&last, block.digits + 48, sizeof(last));
    const uint32_t kLastPowers[] = {0x01010101, 0x03030303, 0x09090909, 0x1b1b1b1b};
    const uint8x16_t powers = vreinterpretq_u8_u32(vld1q_u32(kLastPowers));
    out.codes[15] = FirstDigit(vmulq_u8(vreinterpretq_u8_u32(vdupq_n_u32(last)), powers));
    for (int v = 0; v < 2; ++v) out.scales[v] = BroadcastHalf(block.d);
    return out;
  }
};
