// Formats whose codes name points of a grid, for AVX2: quant/formats/iq1_s.h,
// quant/formats/iq1_m.h, quant/formats/iq2_xxs.h, quant/formats/iq2_xs.h, quant/formats/iq2_s.h,
// quant/formats/iq3_xxs.h, quant/formats/iq3_s.h. So panels are unpacked; fewer tokens have
// unpackers of their own (unpack_points.inl). Included inside the target region of matmul.cpp,
// after unpack_points.inl.

// The coordinates of points of eight, and of four.
template <class Grid>
[[gnu::always_inline]] inline int64_t EightCoordinates(const Grid& grid, size_t point) {
  static_assert(Grid::kDims == 8);
  int64_t coordinates;
  std::memcpy(&coordinates, grid.points[point], sizeof(coordinates));
  return coordinates;
}
template <class Grid>
[[gnu::always_inline]] inline int FourCoordinates(const Grid& grid, size_t point) {
  static_assert(Grid::kDims == 4);
  int coordinates;
  std::memcpy(&coordinates, grid.points[point], sizeof(coordinates));
  return coordinates;
}

// The numbers of 32 points, of whose bits the lower eight and the upper ones lie apart.
struct PointNumbers {
  alignas(32) uint32_t numbers[4][8];

  // Lane g of `low` has the lower bits of points 4g to 4g + 3 as bytes, `high` the upper ones in
  // fields of kBits, kStep bits apart.
  template <int kBits, int kStep>
  [[gnu::always_inline]] void Join(__m256i low, __m256i high) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const __m256i lower =
          _mm256_and_si256(_mm256_srli_epi32(low, 8 * k), _mm256_set1_epi32(0xff));
      const __m256i upper =
          _mm256_and_si256(_mm256_srli_epi32(high, kStep * k), _mm256_set1_epi32((1 << kBits) - 1));
      _mm256_store_si256(reinterpret_cast<__m256i*>(numbers[k]),
                         _mm256_or_si256(lower, _mm256_slli_epi32(upper, 8)));
    }
  }

  [[gnu::always_inline]] size_t Of(int v) const { return numbers[v % 4][v / 4]; }
};

// Magnitudes of at most 62 with signs.
using MagnitudeCodes = CodeTraits<64, 127, false>;

// The magnitudes + kBias, less than kBias where the bit of their byte is set.
template <int kBias>
[[gnu::always_inline]] inline __m256i Sign(__m256i magnitudes, __m256i sign_bytes) {
  const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i minus = _mm256_cmpeq_epi8(_mm256_and_si256(sign_bytes, bits), bits);
  // -x is ~x + 1.
  const __m256i origin = _mm256_sub_epi8(_mm256_set1_epi8(static_cast<char>(kBias)), minus);
  return _mm256_add_epi8(_mm256_xor_si256(magnitudes, minus), origin);
}

// Vectors of 32 consecutive magnitudes become a block. Bit j of word g of `signs` belongs to value
// 32g + j.
template <class Codes>
[[gnu::always_inline]] inline void TakeMagnitudes(const __m256i* magnitudes, __m256i signs,
                                                  WeightBlock& out) {
  alignas(32) int words[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), signs);
  const __m256i from =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  __m256i codes[8];
  for (int g = 0; g < 8; ++g) {
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(words[g]), from);
    codes[g] = Sign<Codes::kBias>(magnitudes[g], bytes);
  }
  for (int h = 0; h < 2; ++h) {
    const __m256i* v = codes + 4 * h;
    TransposeCodes(v[0], v[1], v[2], v[3], out.codes + 4 * h);
  }
}

// d * factor * (2 s + 1) for the eight pairs of groups.
[[gnu::always_inline]] inline void ScaleOddPairs(__m256i scales, quant::PackedHalf d, float factor,
                                                 __m256* out) {
  const __m256i odd = _mm256_add_epi32(_mm256_add_epi32(scales, scales), _mm256_set1_epi32(1));
  const __m256 unit = _mm256_mul_ps(BroadcastHalf(d), _mm256_set1_ps(factor));
  const __m256 pairs = _mm256_mul_ps(_mm256_cvtepi32_ps(odd), unit);
  out[0] = _mm256_permute2f128_ps(pairs, pairs, 0x00);
  out[1] = _mm256_permute2f128_ps(pairs, pairs, 0x11);
}

// The scales of sixteen groups, of d / 8 and s in bytes.
[[gnu::always_inline]] inline void ScaleOddGroups(__m128i scales, quant::PackedHalf d,
                                                  __m256* out) {
  ScaleGroups(_mm_add_epi8(_mm_add_epi8(scales, scales), _mm_set1_epi8(1)), d, out);
  for (int h = 0; h < 2; ++h) out[h] = _mm256_mul_ps(out[h], _mm256_set1_ps(0.125f));
}

struct UnpackIQ1_S {
  using Codes = CodeTraits<16, 31, false, LaneOrder::kPairs>;
  using FewTokens = PointsIQ1_S;
  static constexpr int64_t kBytes = sizeof(quant::IQ1_S::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ1_S::Block*>(bytes);
    const __m128i words = LoadBytes16(block.high);
    PointNumbers points;
    points.Join<3, 3>(LoadBytes32(block.points_low), _mm256_cvtepu16_epi32(words));
    const auto point = [&](int v) __attribute__((always_inline)) {
      return EightCoordinates(quant::kIq1Grid, points.Of(v));
    };
    // +1 or -1, and the bias, in the bytes of each pair's word.
    const __m128i ones = _mm_or_si128(_mm_srai_epi16(words, 15), _mm_set1_epi16(1));
    const __m128i shifts = _mm_add_epi8(ones, _mm_set1_epi16(Codes::kBias));
    WeightBlock out;
    for (int i = 0; i < 4; ++i) {
      const int v = 8 * i;  // of the pair, and v + 4 of the next
      const __m256i from = _mm256_setr_m128i(_mm_set1_epi8(static_cast<char>(4 * i)),
                                             _mm_set1_epi8(static_cast<char>(4 * i + 2)));
      const __m256i shift = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(shifts), from);
      out.codes[2 * i] = _mm256_add_epi8(
          _mm256_setr_epi64x(point(v), point(v + 1), point(v + 4), point(v + 5)), shift);
      out.codes[2 * i + 1] = _mm256_add_epi8(
          _mm256_setr_epi64x(point(v + 2), point(v + 3), point(v + 6), point(v + 7)), shift);
    }
    const __m128i scales = _mm_and_si128(_mm_srli_epi16(words, 12), _mm_set1_epi16(7));
    const __m128i odd = _mm_add_epi16(_mm_add_epi16(scales, scales), _mm_set1_epi16(1));
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    const __m256i pairs = _mm256_permutevar8x32_epi32(_mm256_cvtepi16_epi32(odd), order);
    const __m256 unit = _mm256_mul_ps(BroadcastHalf(block.d), _mm256_set1_ps(0.125f));
    out.scales[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(pairs), unit);
    return out;
  }
};

struct UnpackIQ1_M {
  using Codes = CodeTraits<16, 31, false>;
  using FewTokens = PointsIQ1_M;
  static constexpr int64_t kBytes = sizeof(quant::IQ1_M::Block);
  static constexpr int kScaleValues = 16;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ1_M::Block*>(bytes);
    const __m128i nibbles = LoadBytes16(block.points_high);
    PointNumbers points;
    points.Join<3, 4>(LoadBytes32(block.points_low), _mm256_cvtepu16_epi32(nibbles));
    const auto point = [&](int v) __attribute__((always_inline)) {
      return EightCoordinates(quant::kIq1Grid, points.Of(v));
    };
    // The bias plus 1, or minus 1 where a point's nibble has its upper bit set, as bytes.
    const __m256i both = _mm256_setr_m128i(_mm_unpacklo_epi8(nibbles, _mm_srli_epi16(nibbles, 4)),
                                           _mm_unpackhi_epi8(nibbles, _mm_srli_epi16(nibbles, 4)));
    const __m256i minus = _mm256_and_si256(_mm256_srli_epi16(both, 2), _mm256_set1_epi8(2));
    alignas(32) int shifts[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(shifts),
                       _mm256_sub_epi8(_mm256_set1_epi8(Codes::kBias + 1), minus));
    const __m256i from =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    __m256i codes[8];
    for (int g = 0; g < 8; ++g) {
      const int v = 4 * g;
      codes[g] =
          _mm256_add_epi8(_mm256_setr_epi64x(point(v), point(v + 1), point(v + 2), point(v + 3)),
                          _mm256_shuffle_epi8(_mm256_set1_epi32(shifts[g]), from));
    }
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const __m256i* v = codes + 4 * h;
      TransposeCodes(v[0], v[1], v[2], v[3], out.codes + 4 * h);
    }
    uint64_t words;
    std::memcpy(&words, block.scales, sizeof(words));
    const __m128i scales = FewTokens::Scales(_mm_cvtsi64_si128(static_cast<int64_t>(words)));
    ScaleOddGroups(scales, FewTokens::Scale(words), out.scales);
    return out;
  }
};

struct UnpackIQ2_XXS {
  using Codes = MagnitudeCodes;
  using FewTokens = PointsIQ2_XXS;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_XXS::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_XXS::Block*>(bytes);
    __m256i magnitudes[8];
    for (int g = 0; g < 8; ++g) {
      const uint8_t* p = block.groups[g].points;
      magnitudes[g] = _mm256_setr_epi64x(
          EightCoordinates(quant::kIq2XxsGrid, p[0]), EightCoordinates(quant::kIq2XxsGrid, p[1]),
          EightCoordinates(quant::kIq2XxsGrid, p[2]), EightCoordinates(quant::kIq2XxsGrid, p[3]));
    }
    // Every other word.
    const __m256i groups = OddLanes(LoadBytes32(block.groups), LoadBytes32(block.groups + 4));
    const __m256i words = _mm256_permute4x64_epi64(groups, 0xd8);
    WeightBlock out;
    TakeMagnitudes<Codes>(magnitudes, SignsOfFields(words), out);
    ScaleOddPairs(_mm256_srli_epi32(words, 28), block.d, 0.125f, out.scales);
    return out;
  }
};

struct UnpackIQ2_XS {
  using Codes = MagnitudeCodes;
  using FewTokens = PointsIQ2_XS;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_XS::Block);
  static constexpr int kScaleValues = 16;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_XS::Block*>(bytes);
    const auto point = [&](int v) __attribute__((always_inline)) {
      return EightCoordinates(quant::kIq2XsGrid, block.vectors[v].value() & 511);
    };
    __m256i magnitudes[8];
    for (int g = 0; g < 8; ++g) {
      const int v = 4 * g;
      magnitudes[g] = _mm256_setr_epi64x(point(v), point(v + 1), point(v + 2), point(v + 3));
    }
    const __m256i first = _mm256_srli_epi16(LoadBytes32(block.vectors), 9);
    const __m256i second = _mm256_srli_epi16(LoadBytes32(block.vectors + 16), 9);
    const __m256i sevens = _mm256_permute4x64_epi64(_mm256_packus_epi16(first, second), 0xd8);
    WeightBlock out;
    TakeMagnitudes<Codes>(magnitudes, AddEighthSigns(sevens), out);
    ScaleOddGroups(SixteenNibbles(block.scales), block.d, out.scales);
    return out;
  }
};

struct UnpackIQ2_S {
  using Codes = MagnitudeCodes;
  using FewTokens = PointsIQ2_S;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_S::Block);
  static constexpr int kScaleValues = 16;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_S::Block*>(bytes);
    PointNumbers points;
    points.Join<2, 2>(
        LoadBytes32(block.points_low),
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(block.points_high))));
    const auto point = [&](int v) __attribute__((always_inline)) {
      return EightCoordinates(quant::kIq2SGrid, points.Of(v));
    };
    __m256i magnitudes[8];
    for (int g = 0; g < 8; ++g) {
      const int v = 4 * g;
      magnitudes[g] = _mm256_setr_epi64x(point(v), point(v + 1), point(v + 2), point(v + 3));
    }
    WeightBlock out;
    TakeMagnitudes<Codes>(magnitudes, LoadBytes32(block.signs), out);
    ScaleOddGroups(SixteenNibbles(block.scales), block.d, out.scales);
    return out;
  }
};

struct UnpackIQ3_XXS {
  using Codes = MagnitudeCodes;
  using FewTokens = PointsIQ3_XXS;
  static constexpr int64_t kBytes = sizeof(quant::IQ3_XXS::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ3_XXS::Block*>(bytes);
    const auto point = [&](int v) __attribute__((always_inline)) {
      return FourCoordinates(quant::kIq3XxsGrid, block.points[v]);
    };
    __m256i magnitudes[8];
    for (int g = 0; g < 8; ++g) {
      const int v = 8 * g;
      magnitudes[g] = _mm256_setr_epi32(point(v), point(v + 1), point(v + 2), point(v + 3),
                                        point(v + 4), point(v + 5), point(v + 6), point(v + 7));
    }
    const __m256i words = LoadBytes32(block.signs);
    WeightBlock out;
    TakeMagnitudes<Codes>(magnitudes, SignsOfFields(words), out);
    ScaleOddPairs(_mm256_srli_epi32(words, 28), block.d, 0.25f, out.scales);
    return out;
  }
};

struct UnpackIQ3_S {
  using Codes = CodeTraits<16, 31, false, LaneOrder::kPairs>;
  using FewTokens = PointsIQ3_S;
  static constexpr int64_t kBytes = sizeof(quant::IQ3_S::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ3_S::Block*>(bytes);
    const __m128i high = SixteenNibbles(block.points_high);
    PointNumbers points[2];
    points[0].Join<1, 1>(LoadBytes32(block.points_low), _mm256_cvtepu8_epi32(high));
    points[1].Join<1, 1>(LoadBytes32(block.points_low + 32),
                         _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(high, high)));
    const auto point = [&](int v) __attribute__((always_inline)) {
      return FourCoordinates(quant::kIq3SGrid, points[v / 32].Of(v % 32));
    };
    WeightBlock out;
    for (int i = 0; i < 4; ++i) {
      // The signs of pair 2i in the lower half, of the next in the upper one.
      int64_t both;
      std::memcpy(&both, block.signs + 8 * i, sizeof(both));
      const __m256i signs = _mm256_set1_epi64x(both);
      for (int h = 0; h < 2; ++h) {
        const int v = 16 * i + 4 * h;  // of the pair, and v + 8 of the next
        const __m256i magnitudes =
            _mm256_setr_epi32(point(v), point(v + 1), point(v + 2), point(v + 3),  //
                              point(v + 8), point(v + 9), point(v + 10), point(v + 11));
        const int64_t first = 0x0202020202020202 * h;
        const int64_t step = 0x0101010101010101;
        const __m256i from =
            _mm256_setr_epi64x(first, first + step, first + 4 * step, first + 5 * step);
        out.codes[2 * i + h] = Sign<Codes::kBias>(magnitudes, _mm256_shuffle_epi8(signs, from));
      }
    }
    int nibbles;
    std::memcpy(&nibbles, block.scales, sizeof(nibbles));
    const __m256i shifts = _mm256_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28);
    const __m256i scales = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(nibbles), shifts),
                                            _mm256_set1_epi32(15));
    const __m256i odd = _mm256_or_si256(_mm256_add_epi32(scales, scales), _mm256_set1_epi32(1));
    out.scales[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(odd), BroadcastHalf(block.d));
    return out;
  }
};
