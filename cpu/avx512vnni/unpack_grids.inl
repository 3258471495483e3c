// Formats whose codes name points of a grid, for AVX-512: quant/formats/iq1_s.h,
// quant/formats/iq1_m.h, quant/formats/iq2_xxs.h, quant/formats/iq2_xs.h, quant/formats/iq2_s.h,
// quant/formats/iq3_xxs.h, quant/formats/iq3_s.h. Included inside the target region of matmul.cpp,
// after point_layouts.inl and spread_points.inl.
//
// Points of small grids are looked up as 16 bits in vectors that hold the whole table, and spread
// afterwards. Points of grids of 1024 and more are loaded one by one as they are: beyond 512 points
// loads took less time on Zen 4, and gathers took more time than either.

// Four points for each 64-bit word of `numbers`, 16 bits each: word w of out[f] = the coordinates
// of point f of word w.
template <class Grid>
[[gnu::always_inline]] inline void LoadPoints(const Grid& grid, __m512i numbers, __m512i* out) {
  static_assert(sizeof(grid.points[0]) == 8 && Grid::kCount * 8 <= 1 << 16);
  alignas(64) uint64_t offsets[8];
  _mm512_store_si512(offsets, _mm512_slli_epi16(numbers, 3));
  const auto* base = reinterpret_cast<const std::byte*>(grid.points);
  __m128i two[4][4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
    for (int f = 0; f < 4; ++f) {
      const std::byte* even = base + (offsets[2 * i] >> 16 * f & 0xffff);
      const std::byte* odd = base + (offsets[2 * i + 1] >> 16 * f & 0xffff);
      const __m128 low = _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(even)));
      two[f][i] = _mm_castps_si128(_mm_loadh_pi(low, reinterpret_cast<const __m64*>(odd)));
    }
  }
#pragma GCC unroll 4
  for (int f = 0; f < 4; ++f) out[f] = Join(two[f][0], two[f][1], two[f][2], two[f][3]);
}

// Byte `field` of each 64-bit word in all its bytes.
template <int kField>
[[gnu::always_inline]] inline __m512i RepeatByte(__m512i words) {
  constexpr char k = kField;
  const __m128i from =
      _mm_setr_epi8(k, k, k, k, k, k, k, k, k + 8, k + 8, k + 8, k + 8, k + 8, k + 8, k + 8, k + 8);
  return _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(from));
}

// Points 0 and 1 of a 64-bit word belong to the group of its lower lane, 2 and 3 to that of its
// upper one.
[[gnu::always_inline]] inline __m512i LowerGroups(__m512i a, __m512i b) {
  return _mm512_castps_si512(
      _mm512_mask_moveldup_ps(_mm512_castsi512_ps(a), 0xaaaa, _mm512_castsi512_ps(b)));
}
[[gnu::always_inline]] inline __m512i UpperGroups(__m512i a, __m512i b) {
  return _mm512_castps_si512(
      _mm512_mask_movehdup_ps(_mm512_castsi512_ps(b), 0x5555, _mm512_castsi512_ps(a)));
}
[[gnu::always_inline]] inline void PutGroups(const __m512i* points, WeightBlock& out) {
  out.codes0 = LowerGroups(points[0], points[2]);
  out.codes1 = UpperGroups(points[0], points[2]);
  out.codes2 = LowerGroups(points[1], points[3]);
  out.codes3 = UpperGroups(points[1], points[3]);
}

// d * eighths / 8 * (2 s + 1) for the lower four bits s of each lane; of three bits, the fourth
// does not count where kCount is 8.
template <int kEighths, int kCount = 16>
[[gnu::always_inline]] inline __m512 OddScales(__m512i lanes, quant::PackedHalf d) {
  constexpr float u = kEighths * 0.125f;
  constexpr float v = kCount == 8 ? 0 : 16 * u;
  const __m512 odd =
      _mm512_setr_ps(u, 3 * u, 5 * u, 7 * u, 9 * u, 11 * u, 13 * u, 15 * u, v + u, v + 3 * u,
                     v + 5 * u, v + 7 * u, v + 9 * u, v + 11 * u, v + 13 * u, v + 15 * u);
  return _mm512_mul_ps(_mm512_permutexvar_ps(lanes, odd), BroadcastHalf(d));
}

// Lane 4q + v = 16-bit word v of four, shifted to the right by q * kStep.
template <int kStep>
[[gnu::always_inline]] inline __m512i FieldsOfWords(const void* four) {
  constexpr int k = kStep;
  const __m128i words = _mm_cvtepu16_epi32(LoadBytes8(four));
  return _mm512_srlv_epi32(_mm512_broadcast_i32x4(words),
                           _mm512_setr_epi32(0, 0, 0, 0, k, k, k, k, 2 * k, 2 * k, 2 * k, 2 * k,
                                             3 * k, 3 * k, 3 * k, 3 * k));
}

struct UnpackIQ1_S {
  using Codes = CodeTraits<16, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = sizeof(quant::IQ1_S::Block);
  static constexpr int kScaleValues = 32;

  // The 32 numbers of points.
  [[gnu::always_inline]] static __m512i Numbers(const quant::IQ1_S::Block& block) {
    // Each word in the four 16-bit words of a 64-bit one.
    const __m512i four = _mm512_shuffle_epi8(
        _mm512_cvtepu16_epi64(LoadBytes16(block.high)),
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 8, 9, 8, 9, 8, 9, 8, 9)));
    const __m512i high = _mm512_srlv_epi16(four, _mm512_set1_epi64(0x0009000600030000));
    const __m512i low = _mm512_cvtepu8_epi16(LoadBytes32(block.points_low));
    return SelectBits(_mm512_set1_epi16(0x700), _mm512_slli_epi16(high, 8), low);
  }

  [[gnu::always_inline]] static __m512 Scales(const quant::IQ1_S::Block& block) {
    const __m256i words = _mm256_cvtepu16_epi32(LoadBytes16(block.high));
    const __m512i pairs =
        _mm512_permutexvar_epi32(TwoLanesPerPair(), _mm512_castsi256_si512(words));
    return OddScales<1, 8>(_mm512_srli_epi32(pairs, 12), block.d);
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ1_S::Block*>(bytes);
    __m512i points[4];
    LoadPoints(quant::kIq1Grid, Numbers(block), points);
    const __m512i shift = _mm512_mask_blend_epi64(_mm_movepi16_mask(LoadBytes16(block.high)),
                                                  _mm512_set1_epi8(Codes::kBias + 1),
                                                  _mm512_set1_epi8(Codes::kBias - 1));
    WeightBlock out;
    out.codes0 = _mm512_add_epi8(points[0], shift);
    out.codes1 = _mm512_add_epi8(points[1], shift);
    out.codes2 = _mm512_add_epi8(points[2], shift);
    out.codes3 = _mm512_add_epi8(points[3], shift);
    out.scales = Scales(block);
    return out;
  }
};

struct UnpackIQ1_M {
  using Codes = CodeTraits<16, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ1_M::Block);
  static constexpr int kScaleValues = 16;

  // The upper four bits of four words.
  static quant::PackedHalf Scale(const quant::PackedU16* scales) {
    uint64_t words;
    std::memcpy(&words, scales, sizeof(words));
    const uint64_t bits =
        (words >> 12 & 0xf) | (words >> 24 & 0xf0) | (words >> 36 & 0xf00) | (words >> 48 & 0xf000);
    return quant::PackedHalf::FromBits(static_cast<uint16_t>(bits));
  }

  // The 32 numbers of points, two of a group in its lane, with the bit that says minus above.
  [[gnu::always_inline]] static __m512i Fields(const quant::IQ1_M::Block& block) {
    // A lane has the nibbles of a group's two points, then each in the upper byte of a word.
    const __m512i both = _mm512_cvtepu8_epi32(LoadBytes16(block.points_high));
    const __m512i high = _mm512_or_si512(_mm512_slli_epi32(both, 8), _mm512_slli_epi32(both, 20));
    const __m512i low = _mm512_cvtepu8_epi16(LoadBytes32(block.points_low));
    return _mm512_permutexvar_epi32(GroupOfLane(), SelectBits(_mm512_set1_epi16(0xf00), high, low));
  }

  [[gnu::always_inline]] static __m512 Scales(const quant::IQ1_M::Block& block) {
    return OddScales<1, 8>(FieldsOfWords<3>(block.scales), Scale(block.scales));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ1_M::Block*>(bytes);
    const __m512i fields = Fields(block);
    __m512i points[4];
    LoadPoints(quant::kIq1Grid, _mm512_and_si512(fields, _mm512_set1_epi16(0x7ff)), points);
    // The bias plus 1, or minus 1, in a word's upper byte.
    const __m512i minus = _mm512_srli_epi16(_mm512_and_si512(fields, _mm512_set1_epi16(0x800)), 2);
    const __m512i shifts = _mm512_sub_epi16(_mm512_set1_epi16((Codes::kBias + 1) << 8), minus);
    points[0] = _mm512_add_epi8(points[0], RepeatByte<1>(shifts));
    points[1] = _mm512_add_epi8(points[1], RepeatByte<3>(shifts));
    points[2] = _mm512_add_epi8(points[2], RepeatByte<5>(shifts));
    points[3] = _mm512_add_epi8(points[3], RepeatByte<7>(shifts));
    WeightBlock out;
    PutGroups(points, out);
    out.scales = Scales(block);
    return out;
  }
};

struct UnpackIQ2_XXS {
  using Codes = CodeTraits<128, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_XXS::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_XXS::Block*>(bytes);
    const __m512i groups = _mm512_loadu_si512(block.groups);
    const __m512i numbers =
        _mm512_shuffle_epi8(groups, _mm512_broadcast_i32x4(_mm_setr_epi8(
                                        0, -1, 1, -1, 2, -1, 3, -1, 8, -1, 9, -1, 10, -1, 11, -1)));
    const __m512i packed = LookUpWords(quant::kIq2XxsPacked.words, numbers);
    WeightBlock out;
    Spread<EightsInPairs>(packed, packed, SignsOfFields<32>(groups), kIq2SignedLevels.Everywhere(),
                          out);
    const __m512i odd = _mm512_shuffle_epi32(groups, _MM_PERM_DDBB);
    out.scales = OddScales<1>(_mm512_srli_epi32(odd, 28), block.d);
    return out;
  }
};

struct UnpackIQ2_XS {
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_XS::Block);
  static constexpr int kScaleValues = 16;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_XS::Block*>(bytes);
    const __m512i vectors =
        _mm512_permutexvar_epi32(GroupOfLane(), _mm512_loadu_si512(block.vectors));
    const __mmask32 ninth = _mm512_test_epi16_mask(vectors, _mm512_set1_epi16(256));
    const __m512i packed =
        _mm512_mask_blend_epi16(ninth, LookUpWords(quant::kIq2XsPacked.words, vectors),
                                LookUpWords(quant::kIq2XsPacked.words + 256, vectors));
    WeightBlock out;
    Spread<EightsInGroups>(packed, packed, SignsOfSevens(_mm512_srli_epi16(vectors, 9)),
                           kIq2SignedLevels.Everywhere(), out);
    out.scales = OddScales<1>(FieldsOfWords<4>(block.scales), block.d);
    return out;
  }
};

struct UnpackIQ2_S {
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_S::Block);
  static constexpr int kScaleValues = 16;

  // The coordinates + 128, minus where a bit of byte kField of the signs is set.
  template <int kField>
  [[gnu::always_inline]] static __m512i Sign(__m512i coordinates, __m512i signs) {
    const __mmask64 minus = _mm512_test_epi8_mask(
        RepeatByte<kField>(signs), _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201)));
    const __m512i origin = _mm512_set1_epi8(static_cast<char>(0x80));
    return _mm512_mask_sub_epi8(_mm512_xor_si512(coordinates, origin), minus, origin, coordinates);
  }

  // The 32 numbers of points, two of a group in its lane.
  [[gnu::always_inline]] static __m512i Numbers(const quant::IQ2_S::Block& block) {
    // Lane v has the upper bits of points 2v and 2v + 1 at its lower end.
    const __m128i bytes = LoadBytes8(block.points_high);
    const __m512i fields = _mm512_srlv_epi32(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes)),
                                             _mm512_set1_epi64(int64_t{4} << 32));
    const __m512i high =
        _mm512_or_si512(_mm512_slli_epi32(fields, 8), _mm512_slli_epi32(fields, 22));
    const __m512i low = _mm512_cvtepu8_epi16(LoadBytes32(block.points_low));
    return _mm512_permutexvar_epi32(GroupOfLane(), SelectBits(_mm512_set1_epi16(0x300), high, low));
  }

  // The two sign bytes of a group at the lower end of its lane.
  [[gnu::always_inline]] static __m512i Signs(const quant::IQ2_S::Block& block) {
    return _mm512_permutexvar_epi32(GroupOfLane(), _mm512_cvtepu16_epi32(LoadBytes32(block.signs)));
  }

  [[gnu::always_inline]] static __m512 Scales(const quant::IQ2_S::Block& block) {
    return OddScales<1>(FieldsOfWords<4>(block.scales), block.d);
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_S::Block*>(bytes);
    __m512i points[4];
    LoadPoints(quant::kIq2SGrid, Numbers(block), points);
    const __m512i signs = Signs(block);
    points[0] = Sign<0>(points[0], signs);
    points[1] = Sign<1>(points[1], signs);
    points[2] = Sign<4>(points[2], signs);
    points[3] = Sign<5>(points[3], signs);
    WeightBlock out;
    PutGroups(points, out);
    out.scales = Scales(block);
    return out;
  }
};

struct UnpackIQ3_XXS {
  using Codes = CodeTraits<128, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = sizeof(quant::IQ3_XXS::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ3_XXS::Block*>(bytes);
    const __m512i words = _mm512_cvtepu32_epi64(LoadBytes32(block.signs));
    __m512i packed[2];
    LookUpQuads(quant::kIq3XxsPacked, block.points, 0, packed);
    WeightBlock out;
    Spread<FoursInPairs>(packed[0], packed[1], SignsOfFields<0>(words),
                         kIq3XxsSignedLevels.Everywhere(), out);
    const __m512i twice = _mm512_shuffle_epi32(words, _MM_PERM_CCAA);
    out.scales = OddScales<2>(_mm512_srli_epi32(twice, 28), block.d);
    return out;
  }
};

struct UnpackIQ3_S {
  using Codes = CodeTraits<128, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = sizeof(quant::IQ3_S::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ3_S::Block*>(bytes);
    uint64_t ninth;
    int nibbles;
    std::memcpy(&ninth, block.points_high, sizeof(ninth));
    std::memcpy(&nibbles, block.scales, sizeof(nibbles));
    __m512i packed[2];
    LookUpQuads(quant::kIq3SPacked, block.points_low, ninth, packed);
    WeightBlock out;
    Spread<FoursInPairs>(packed[0], packed[1], _mm512_cvtepu32_epi64(LoadBytes32(block.signs)),
                         kIq3SSignedLevels.Everywhere(), out);
    const __m512i shifts = _mm512_slli_epi32(TwoLanesPerPair(), 2);
    out.scales = OddScales<8>(_mm512_srlv_epi32(_mm512_set1_epi32(nibbles), shifts), block.d);
    return out;
  }
};
