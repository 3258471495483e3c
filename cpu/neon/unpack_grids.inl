// Formats whose codes name points of a grid, for NEON: quant/formats/iq1_s.h,
// quant/formats/iq1_m.h, quant/formats/iq2_xxs.h, quant/formats/iq2_xs.h, quant/formats/iq2_s.h,
// quant/formats/iq3_xxs.h, quant/formats/iq3_s.h. Included inside the target region of matmul.cpp.

// Sixteen coordinates: of two points, or of four.
template <class Grid>
[[gnu::always_inline]] inline int8x16_t Points(const Grid& grid, size_t a, size_t b) {
  static_assert(Grid::kDims == 8);
  return vcombine_s8(vld1_s8(grid.points[a]), vld1_s8(grid.points[b]));
}
template <class Grid>
[[gnu::always_inline]] inline int8x16_t Points(const Grid& grid, size_t a, size_t b, size_t c,
                                               size_t d) {
  static_assert(Grid::kDims == 4);
  const auto word = [&](size_t point) __attribute__((always_inline)) {
    int32_t coordinates;
    std::memcpy(&coordinates, grid.points[point], sizeof(coordinates));
    return coordinates;
  };
  const int32x4_t words = {word(a), word(b), word(c), word(d)};
  return vreinterpretq_s8_s32(words);
}

// Eight indices: bytes, and above them the bits of kMask of `high`.
template <uint16_t kMask>
[[gnu::always_inline]] inline uint16x8_t Indices(const uint8_t* low, uint16x8_t high) {
  return vbslq_u16(vdupq_n_u16(kMask), high, vmovl_u8(vld1_u8(low)));
}

// The points of eight indices.
template <class Grid>
[[gnu::always_inline]] inline void TakePoints(const Grid& grid, uint16x8_t indices,
                                              int8x16_t* out) {
  const uint64x2_t lanes = vreinterpretq_u64_u16(indices);
  const uint64_t words[] = {vgetq_lane_u64(lanes, 0), vgetq_lane_u64(lanes, 1)};
  const auto at = [&](int k) __attribute__((always_inline)) {
    return words[k / 4] >> (16 * (k % 4)) & 0xffff;
  };
  if constexpr (Grid::kDims == 4) {
    out[0] = Points(grid, at(0), at(1), at(2), at(3));
    out[1] = Points(grid, at(4), at(5), at(6), at(7));
  } else {
    out[0] = Points(grid, at(0), at(1));
    out[1] = Points(grid, at(2), at(3));
    out[2] = Points(grid, at(4), at(5));
    out[3] = Points(grid, at(6), at(7));
  }
}

inline uint8x16_t LoadBytes(const void* p) { return vld1q_u8(static_cast<const uint8_t*>(p)); }

// Eight vectors of magnitudes become codes: minus where a bit of the sixteen bytes is set.
[[gnu::always_inline]] inline void ApplySigns(uint8x16_t signs, int8x16_t* codes) {
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) {
    const int8x16_t minus = vreinterpretq_s8_u8(MaskOfBits(signs, 2 * k));
    codes[k] = vsubq_s8(veorq_s8(codes[k], minus), minus);
  }
}

// The lower seven bits of every byte, and the eighth sign, which makes the number of minus signs
// even.
[[gnu::always_inline]] inline uint8x16_t AddEvenSigns(uint8x16_t sevens) {
  return vsliq_n_u8(sevens, vcntq_u8(vshlq_n_u8(sevens, 1)), 7);
}

// The signs of the four fields of seven at the lower end of each word, as bytes.
[[gnu::always_inline]] inline uint8x16_t SignsOfWords(uint32x4_t words) {
  const uint32x4_t halves = vbslq_u32(vdupq_n_u32(0xffff), words, vshlq_n_u32(words, 2));
  const uint32x4_t bytes = vbslq_u32(vdupq_n_u32(0xff00ff), halves, vshlq_n_u32(halves, 1));
  return AddEvenSigns(vreinterpretq_u8_u32(bytes));
}

// unit * (2 s + 1) for the upper four bits s of each word.
[[gnu::always_inline]] inline float32x4_t ScaleOddWords(uint32x4_t words, float32x4_t unit) {
  const uint32x4_t twice = vandq_u32(vshrq_n_u32(words, 27), vdupq_n_u32(0x1e));
  return vmulq_f32(vcvtq_f32_u32(vorrq_u32(twice, vdupq_n_u32(1))), unit);
}

// 2 s + 1 for the sixteen nibbles s of eight bytes.
[[gnu::always_inline]] inline int8x16_t OddOfNibbles(uint8x8_t bytes) {
  const uint8x8_t mask = vdup_n_u8(0x1e);
  const uint8x8_t low = vand_u8(vshl_n_u8(bytes, 1), mask);
  const uint8x8_t high = vand_u8(vshr_n_u8(bytes, 3), mask);
  const uint8x16_t twice = vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high));
  return vreinterpretq_s8_u8(vorrq_u8(twice, vdupq_n_u8(1)));
}

// The points of an IQ1 block. A word holds the upper three bits of four indices, kStep bits apart.
template <int kStep>
[[gnu::always_inline]] inline void TakeIq1Points(const uint8_t* low, uint16x8_t words,
                                                 int8x16_t* out) {
  const int16_t kShifts[] = {8, 8 - kStep, 8 - 2 * kStep, 8 - 3 * kStep,
                             8, 8 - kStep, 8 - 2 * kStep, 8 - 3 * kStep};
  const int16x8_t shifts = vld1q_s16(kShifts);
  const uint16x8_t pairs[] = {vzip1q_u16(words, words), vzip2q_u16(words, words)};
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    // Each word in four lanes.
    const uint16x8_t first = vshlq_u16(vzip1q_u16(pairs[h], pairs[h]), shifts);
    const uint16x8_t second = vshlq_u16(vzip2q_u16(pairs[h], pairs[h]), shifts);
    TakePoints(quant::kIq1Grid, Indices<0x700>(low + 16 * h, first), out + 8 * h);
    TakePoints(quant::kIq1Grid, Indices<0x700>(low + 16 * h + 8, second), out + 8 * h + 4);
  }
}

struct UnpackIQ1_S {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ1_S::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ1_S::Block*>(bytes);
    const uint16x8_t words = vreinterpretq_u16_u8(LoadBytes(block.high));
    WeightBlock out;
    TakeIq1Points<3>(block.points_low, words, out.codes);
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
      const auto word = static_cast<int16_t>(block.high[k / 2].value());
      out.codes[k] = vaddq_s8(out.codes[k], vdupq_n_s8(static_cast<int8_t>(word >> 15 | 1)));
    }
    // s lies in bits 12 to 14.
    const uint16x8_t twice = vandq_u16(vshrq_n_u16(words, 11), vdupq_n_u16(14));
    ScaleEight(vreinterpretq_s16_u16(vorrq_u16(twice, vdupq_n_u16(1))),
               vmulq_n_f32(BroadcastHalf(block.d), 0.125f), out.scales);
    return out;
  }
};

struct UnpackIQ1_M {
  using Codes = CodeTraits<16, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ1_M::Block);

  // 2 s + 1 for the groups of two words, which lie in the lanes four times each.
  [[gnu::always_inline]] static int16x8_t OddScales(uint16x8_t words) {
    const int16_t kShifts[] = {1, -2, -5, -8, 1, -2, -5, -8};
    const uint16x8_t twice = vandq_u16(vshlq_u16(words, vld1q_s16(kShifts)), vdupq_n_u16(14));
    return vreinterpretq_s16_u16(vorrq_u16(twice, vdupq_n_u16(1)));
  }

  [[gnu::always_inline]] static void TakeScales(const quant::IQ1_M::Block& block,
                                                float32x4_t* out) {
    uint64_t packed;
    std::memcpy(&packed, block.scales, sizeof(packed));
    const uint64_t half = (packed >> 12 & 0x000f) | (packed >> 24 & 0x00f0) |
                          (packed >> 36 & 0x0f00) | (packed >> 48 & 0xf000);
    const auto d = quant::PackedHalf::FromBits(static_cast<uint16_t>(half));
    const float32x4_t unit = vmulq_n_f32(BroadcastHalf(d), 0.125f);
    const uint16x8_t words = vreinterpretq_u16_u64(vdupq_n_u64(packed));
    const uint16x8_t pairs = vzip1q_u16(words, words);
    ScaleEight(OddScales(vzip1q_u16(pairs, pairs)), unit, out);
    ScaleEight(OddScales(vzip2q_u16(pairs, pairs)), unit, out + 2);
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ1_M::Block*>(bytes);
    const uint8x16_t high = vld1q_u8(block.points_high);
    WeightBlock out;
    TakeIq1Points<4>(block.points_low, vreinterpretq_u16_u8(high), out.codes);
    // Where a point is shifted by -1, in a byte that belongs to two.
    const uint8x16_t minus_bits = vcombine_u8(vdup_n_u8(0x08), vdup_n_u8(0x80));
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
      const uint8x16_t minus = vtstq_u8(vdupq_n_u8(block.points_high[k]), minus_bits);
      const uint8x16_t shift = vorrq_u8(minus, vdupq_n_u8(1));
      out.codes[k] = vaddq_s8(out.codes[k], vreinterpretq_s8_u8(shift));
    }
    TakeScales(block, out.scales);
    return out;
  }
};

struct UnpackIQ2_XXS {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_XXS::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_XXS::Block*>(bytes);
    const float32x4_t unit = vmulq_n_f32(BroadcastHalf(block.d), 0.125f);
    WeightBlock out;
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
      const uint8_t* p = block.groups[k / 2].points + 2 * (k % 2);
      out.codes[k] = Points(quant::kIq2XxsGrid, p[0], p[1]);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const uint32x4_t first = vreinterpretq_u32_u8(LoadBytes(block.groups + 4 * h));
      const uint32x4_t second = vreinterpretq_u32_u8(LoadBytes(block.groups + 4 * h + 2));
      const uint32x4_t words = vuzp2q_u32(first, second);
      ApplySigns(SignsOfWords(words), out.codes + 8 * h);
      out.scales[h] = ScaleOddWords(words, unit);
    }
    return out;
  }
};

struct UnpackIQ2_XS {
  using Codes = CodeTraits<16, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_XS::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_XS::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const uint8x16_t vectors[] = {LoadBytes(block.vectors + 16 * h),
                                    LoadBytes(block.vectors + 16 * h + 8)};
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const uint16x8_t words = vreinterpretq_u16_u8(vectors[i]);
        TakePoints(quant::kIq2XsGrid, vandq_u16(words, vdupq_n_u16(511)),
                   out.codes + 8 * h + 4 * i);
      }
      const uint8x16_t sevens = vshrq_n_u8(vuzp2q_u8(vectors[0], vectors[1]), 1);
      ApplySigns(AddEvenSigns(sevens), out.codes + 8 * h);
    }
    ScaleSixteen(OddOfNibbles(vld1_u8(block.scales)), vmulq_n_f32(BroadcastHalf(block.d), 0.125f),
                 out.scales);
    return out;
  }
};

struct UnpackIQ2_S {
  using Codes = CodeTraits<16, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_S::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_S::Block*>(bytes);
    const int16_t kShifts[] = {8, 6, 4, 2, 0, -2, -4, -6};
    WeightBlock out;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      // Bits 2k and 2k + 1 of a word are the upper ones of point k.
      uint16_t word;
      std::memcpy(&word, block.points_high + 2 * i, sizeof(word));
      const uint16x8_t high = vshlq_u16(vdupq_n_u16(word), vld1q_s16(kShifts));
      TakePoints(quant::kIq2SGrid, Indices<0x300>(block.points_low + 8 * i, high),
                 out.codes + 4 * i);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) ApplySigns(vld1q_u8(block.signs + 16 * h), out.codes + 8 * h);
    ScaleSixteen(OddOfNibbles(vld1_u8(block.scales)), vmulq_n_f32(BroadcastHalf(block.d), 0.125f),
                 out.scales);
    return out;
  }
};

struct UnpackIQ3_XXS {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ3_XXS::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ3_XXS::Block*>(bytes);
    const float32x4_t unit = vmulq_n_f32(BroadcastHalf(block.d), 0.25f);
    WeightBlock out;
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
      const uint8_t* p = block.points + 4 * k;
      out.codes[k] = Points(quant::kIq3XxsGrid, p[0], p[1], p[2], p[3]);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const uint32x4_t words = vreinterpretq_u32_u8(LoadBytes(block.signs + 4 * h));
      ApplySigns(SignsOfWords(words), out.codes + 8 * h);
      out.scales[h] = ScaleOddWords(words, unit);
    }
    return out;
  }
};

struct UnpackIQ3_S {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ3_S::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ3_S::Block*>(bytes);
    const uint16_t kBits[] = {1, 2, 4, 8, 16, 32, 64, 128};
    const uint16x8_t bits = vld1q_u16(kBits);
    WeightBlock out;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      // Bit k of a byte is the ninth of point k.
      const uint16x8_t high = vtstq_u16(vdupq_n_u16(block.points_high[i]), bits);
      TakePoints(quant::kIq3SGrid, Indices<0x100>(block.points_low + 8 * i, high),
                 out.codes + 2 * i);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) ApplySigns(vld1q_u8(block.signs + 16 * h), out.codes + 8 * h);
    uint32_t nibbles;
    std::memcpy(&nibbles, block.scales, sizeof(nibbles));
    const int8x16_t scales = OddOfNibbles(vcreate_u8(nibbles));
    ScaleEight(vmovl_s8(vget_low_s8(scales)), BroadcastHalf(block.d), out.scales);
    return out;
  }
};
