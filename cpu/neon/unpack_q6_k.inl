// Q6_K for NEON: quant/formats/q6_k.h. Included inside the target region of matmul.cpp.

struct UnpackQ6_K {
  using Codes = CodeTraits<16, false>;
  static constexpr int64_t kBytes = sizeof(quant::Q6_K::Block);

  // Codes less 32, with the upper bits of run kRun.
  template <int kRun>
  [[gnu::always_inline]] static int8x16_t Finish(int8x16_t codes, uint8x16_t high) {
    return vsubq_s8(Insert(codes, Shift<4 - 2 * kRun>(high), 0x30), vdupq_n_s8(32));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q6_K::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // half of the block, half of a run of 32 values
      const int64_t half = i / 2;
      const int64_t at = i % 2;
      const uint8x16_t low0 = vld1q_u8(block.low + 64 * half + 16 * at);
      const uint8x16_t low1 = vld1q_u8(block.low + 64 * half + 32 + 16 * at);
      const uint8x16_t high = vld1q_u8(block.high + 32 * half + 16 * at);
      int8x16_t* codes = out.codes + 8 * half + at;
      codes[0] = Finish<0>(LowNibbles(low0), high);
      codes[2] = Finish<1>(LowNibbles(low1), high);
      codes[4] = Finish<2>(HighNibbles(low0), high);
      codes[6] = Finish<3>(HighNibbles(low1), high);
    }
    ScaleSixteen(vld1q_s8(block.scales), BroadcastHalf(block.d), out.scales);
    return out;
  }
};
