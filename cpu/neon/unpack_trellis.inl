// ik_llama.cpp's trellis formats for NEON: quant/formats/trellis.h, quant/formats/iq1_kt.h to
// quant/formats/iq4_kt.h. Included inside the target region of matmul.cpp, after
// unpack_shifted.inl. Numbers are computed from indices where they are used: a product gives four
// states, a dot product the sums of their fields.

template <class Format>
struct UnpackTrellis {
  using Block = typename Format::Block;
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = sizeof(Block);
  static constexpr bool kHasRowFactor = true;
  static constexpr bool kMagnitudes = requires(const Block& b) { b.signs; };

  // Values [4 * four, 4 * four + 4) before their signs.
  [[gnu::always_inline]] static int16x4_t Numbers(const Block& block, int four) {
    constexpr int kFours = Format::kPoint / 4;
    const uint32_t state = quant::kTrellisStart + Format::Index(block, four / kFours);
    const uint32x4_t powers = vld1q_u32(quant::kTrellisPowers.data() + four % kFours * 4);
    const uint8x16_t fields =
        vandq_u8(vreinterpretq_u8_u32(vmulq_n_u32(powers, state)), vdupq_n_u8(0x3f));
    const uint32x4_t sums =
        vdotq_u32(vdupq_n_u32(static_cast<uint32_t>(-126)), fields, vdupq_n_u8(1));
    return vmovn_s32(vreinterpretq_s32_u32(sums));
  }

  template <int kGroup>
  [[gnu::always_inline]] static int8x16_t Group(const Block& block) {
    const int four = 4 * kGroup;
    const int16x8_t low = vcombine_s16(Numbers(block, four), Numbers(block, four + 1));
    const int16x8_t high = vcombine_s16(Numbers(block, four + 2), Numbers(block, four + 3));
    const int8x16_t numbers = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
    if constexpr (!kMagnitudes) {
      return numbers;
    } else {
      using Signs = typename Format::Signs;
      const uint8x16_t bytes = vld1q_u8(block.signs + Signs::Byte(16 * kGroup));
      const uint8x16_t minus = vtstq_u8(bytes, vdupq_n_u8(1 << Signs::Shift(16 * kGroup)));
      const int8x16_t magnitudes = vabsq_s8(numbers);
      return vbslq_s8(minus, vnegq_s8(magnitudes), magnitudes);
    }
  }
  template <int... kGroups>
  [[gnu::always_inline]] static void TakeGroups(const Block& block, WeightBlock& out,
                                                std::integer_sequence<int, kGroups...>) {
    ((out.codes[kGroups] = Group<kGroups>(block)), ...);
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const Block*>(bytes);
    WeightBlock out;
    TakeGroups(block, out, std::make_integer_sequence<int, 16>());
    TakeScales<2>(vdupq_n_f32(1.0f), out.scales, [&](int g) { return Format::Scale(block, g); });
    return out;
  }
};
