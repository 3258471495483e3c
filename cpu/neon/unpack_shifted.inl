// ik_llama.cpp's formats of shifted levels for NEON: quant/search/shifted_fit.h,
// quant/formats/iq2_k.h to quant/formats/iq6_k.h, quant/formats/iq2_ks.h to quant/formats/iq5_ks.h.
// Included inside the target region of matmul.cpp, after unpack_pieces.inl. Scales are few and
// taken one by one, while vectors do the rest.

// Values [16 * kGroup, 16 * kGroup + 16) of a plane of bits, whose fields begin at bit kBit; the
// other bits are any.
template <class Plane, int kGroup, int kBit>
[[gnu::always_inline]] inline uint8x16_t FieldsOfGroup(const uint8_t* plane) {
  return Shift<kBit - Plane::Shift(16 * kGroup)>(vld1q_u8(plane + Plane::Byte(16 * kGroup)));
}

// Codes of a group; upper bits have a plane of their own.
template <class Format, int kGroup>
[[gnu::always_inline]] inline uint8x16_t CodesOfGroup(const typename Format::Block& block) {
  const uint8x16_t mask = vdupq_n_u8(Format::kLevels.kCount - 1);
  if constexpr (requires { block.words; }) {  // quant/formats/iq4_kss.h
    const auto* words = reinterpret_cast<const uint8_t*>(block.words + kGroup / 2 * 8);
    const uint16x8_t even = vandq_u16(vreinterpretq_u16_u8(vld1q_u8(words)), vdupq_n_u16(0xfffe));
    const uint8x16_t codes = vreinterpretq_u8_u16(veorq_u16(even, vshrq_n_u16(even, 1)));
    return vandq_u8(Shift<-4 * (kGroup % 2)>(codes), mask);
  } else if constexpr (requires { block.high; }) {
    constexpr int kLowBits = Format::kLevels.kCount == 8 ? 2 : 4;
    const uint8x16_t low = FieldsOfGroup<typename Format::Low, kGroup, 0>(block.low);
    const uint8x16_t high = FieldsOfGroup<typename Format::High, kGroup, kLowBits>(block.high);
    return vandq_u8(vbslq_u8(vdupq_n_u8((1 << kLowBits) - 1), low, high), mask);
  } else {
    return vandq_u8(FieldsOfGroup<typename Format::Low, kGroup, 0>(block.low), mask);
  }
}

// The entries of a table of up to 64 bytes.
template <int kCount>
[[gnu::always_inline]] inline int8x16_t LookUpCodes(const int8_t* table, uint8x16_t codes) {
  if constexpr (kCount == 64) return vqtbl4q_s8(vld1q_s8_x4(table), codes);
  if constexpr (kCount == 32) return vqtbl2q_s8(vld1q_s8_x2(table), codes);
  return vqtbl1q_s8(vld1q_s8(table), codes);
}

// Levels, and behind them zeros up to sixteen bytes.
template <class Format>
struct LevelBytes {
  static constexpr int kCount = Format::kLevels.kCount;
  alignas(16) int8_t bytes[kCount < 16 ? 16 : kCount] = {};
  constexpr LevelBytes() {
    for (int i = 0; i < kCount; ++i) bytes[i] = Format::kLevels.levels[i];
  }
};
template <class Format>
constexpr LevelBytes<Format> kLevelBytes;

// Four times as many scales as there are vectors, from Scale(group) of a format.
template <int kVectors, class Scale>
[[gnu::always_inline]] inline void TakeScales(float32x4_t factor, float32x4_t* out, Scale scale) {
  int32_t scales[4 * kVectors];
#pragma GCC unroll 16
  for (int g = 0; g < 4 * kVectors; ++g) scales[g] = scale(g);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    out[v] = vmulq_f32(vcvtq_f32_s32(vld1q_s32(scales + 4 * v)), factor);
  }
}

// kHasRowFactor: the row has the unit of the scales, which 32 values share then; otherwise the
// block has it, and 16 values share a scale.
template <class Format>
struct UnpackShifted {
  using Block = typename Format::Block;
  static constexpr bool kHasRowFactor = requires { typename Format::Head; };
  using Codes = CodeTraits<kHasRowFactor ? 32 : 16, false>;
  static constexpr int64_t kBytes = sizeof(Block);

  template <int kGroup>
  [[gnu::always_inline]] static int8x16_t Group(const Block& block) {
    uint32_t shifted;
    if constexpr (kHasRowFactor) {
      shifted = Format::Shifted(block, kGroup / 2);
    } else {
      shifted = block.shifted.value() >> kGroup & 1;
    }
    const int more = static_cast<int>(shifted) * Format::kLevels.shift;
    return vaddq_s8(LookUpCodes<Format::kLevels.kCount>(kLevelBytes<Format>.bytes,
                                                        CodesOfGroup<Format, kGroup>(block)),
                    vdupq_n_s8(static_cast<int8_t>(more)));
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
    float32x4_t factor;
    if constexpr (kHasRowFactor) {
      factor = vdupq_n_f32(1.0f);
    } else {
      factor = BroadcastHalf(block.d);
    }
    TakeScales<Codes::kScaleVectors>(factor, out.scales,
                                     [&](int g) { return Format::Scale(block, g); });
    return out;
  }
};

// The first and the second levels of pairs.
struct PairBytes {
  alignas(16) int8_t bytes[2][32] = {};
  constexpr PairBytes() {
    for (int i = 0; i < 32; ++i) {
      for (int j = 0; j < 2; ++j) bytes[j][i] = quant::kLevelPairs[i][j];
    }
  }
};
constexpr PairBytes kPairBytes;

// Pairs of levels, quant/formats/iq2_kl.h.
struct UnpackIQ2_KL {
  using Format = quant::IQ2_KL;
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = sizeof(Format::Block);
  static constexpr bool kHasRowFactor = true;

  // 32 values, from 16 numbers of pairs.
  template <int kPairs>
  [[gnu::always_inline]] static void Take(const Format::Block& block, int8x16_t* codes) {
    const uint8x16_t low = FieldsOfGroup<Format::Low, kPairs, 0>(block.low);
    const uint8x16_t high = FieldsOfGroup<Format::High, kPairs, 4>(block.high);
    const uint8x16_t pairs = vandq_u8(vbslq_u8(vdupq_n_u8(15), low, high), vdupq_n_u8(31));
    const int8x16_t first = LookUpCodes<32>(kPairBytes.bytes[0], pairs);
    const int8x16_t second = LookUpCodes<32>(kPairBytes.bytes[1], pairs);
    codes[0] = vzip1q_s8(first, second);
    codes[1] = vzip2q_s8(first, second);
  }
  template <int... kPairs>
  [[gnu::always_inline]] static void TakeAll(const Format::Block& block, WeightBlock& out,
                                             std::integer_sequence<int, kPairs...>) {
    (Take<kPairs>(block, out.codes + 2 * kPairs), ...);
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const Format::Block*>(bytes);
    WeightBlock out;
    TakeAll(block, out, std::make_integer_sequence<int, 8>());
    TakeScales<2>(vdupq_n_f32(1.0f), out.scales, [&](int g) { return Format::Scale(block, g); });
    return out;
  }
};
