// Q4_K and Q5_K for NEON: quant/formats/q4_k.h, quant/formats/q5_k.h. Included inside the target
// region of matmul.cpp.

// quant/formats/scale_min_pairs.h, four pairs at a time in the bytes of a word.
template <class Block>
[[gnu::always_inline]] inline void UnpackPairs(const Block& block, WeightBlock& out) {
  uint32_t words[3];
  std::memcpy(words, block.pairs.bytes, sizeof(words));
  const uint32_t high_scales = (words[2] & 0x0f0f0f0f) | (words[0] >> 2 & 0x30303030);
  const uint32_t high_mins = (words[2] >> 4 & 0x0f0f0f0f) | (words[1] >> 2 & 0x30303030);
  const uint64_t scales = (words[0] & 0x3f3f3f3f) | uint64_t{high_scales} << 32;
  const uint64_t mins = (words[1] & 0x3f3f3f3f) | uint64_t{high_mins} << 32;
  ScaleEight(vmovl_s8(vcreate_s8(scales)), BroadcastHalf(block.d), out.scales);
  ScaleEight(vmovl_s8(vcreate_s8(mins)), BroadcastHalf(block.dmin), out.offsets);
}

struct UnpackQ4_K {
  using Codes = CodeTraits<32, true>;
  static constexpr int64_t kBytes = sizeof(quant::Q4_K::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q4_K::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 4
    for (int run = 0; run < 4; ++run) {
      const uint8x16_t first = vld1q_u8(block.codes + 32 * run);
      const uint8x16_t second = vld1q_u8(block.codes + 32 * run + 16);
      out.codes[4 * run] = LowNibbles(first);
      out.codes[4 * run + 1] = LowNibbles(second);
      out.codes[4 * run + 2] = HighNibbles(first);
      out.codes[4 * run + 3] = HighNibbles(second);
    }
    UnpackPairs(block, out);
    return out;
  }
};

struct UnpackQ5_K {
  using Codes = CodeTraits<32, true>;
  static constexpr int64_t kBytes = sizeof(quant::Q5_K::Block);

  // The 64 values of run kRun, whose fifth bits are bits 2 kRun and 2 kRun + 1 of `high`.
  template <int kRun>
  [[gnu::always_inline]] static void UnpackRun(const uint8_t* low, const uint8x16_t* high,
                                               int8x16_t* out) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const uint8x16_t bytes = vld1q_u8(low + 32 * kRun + 16 * i);
      out[4 * kRun + i] = Insert(LowNibbles(bytes), Shift<4 - 2 * kRun>(high[i]), 0x10);
      out[4 * kRun + 2 + i] = Insert(HighNibbles(bytes), Shift<3 - 2 * kRun>(high[i]), 0x10);
    }
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q5_K::Block*>(bytes);
    const uint8x16_t high[] = {vld1q_u8(block.high), vld1q_u8(block.high + 16)};
    WeightBlock out;
    UnpackRun<0>(block.low, high, out.codes);
    UnpackRun<1>(block.low, high, out.codes);
    UnpackRun<2>(block.low, high, out.codes);
    UnpackRun<3>(block.low, high, out.codes);
    UnpackPairs(block, out);
    return out;
  }
};
