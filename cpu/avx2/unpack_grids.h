// Formats whose codes name points of a grid, for AVX2: quant/iq1_s.h, quant/iq2_xxs.h,
// quant/iq2_xs.h, quant/iq2_s.h, quant/iq3_xxs.h, quant/iq3_s.h. Included inside the target region
// of matmul.cpp.

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

// Vectors of 32 consecutive magnitudes become a block. Bit j of word g of `signs` belongs to value
// 32g + j.
[[gnu::always_inline]] inline void TakeMagnitudes(const __m256i* magnitudes, __m256i signs,
                                                  WeightBlock& out) {
  alignas(32) int words[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), signs);
  const __m256i from =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  __m256i codes[8];
  for (int g = 0; g < 8; ++g) {
    const __m256i found =
        _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(words[g]), from), bits);
    const __m256i minus = _mm256_cmpeq_epi8(found, bits);
    codes[g] = StoreSigned(_mm256_sub_epi8(_mm256_xor_si256(magnitudes[g], minus), minus));
  }
  for (int h = 0; h < 2; ++h) {
    const __m256i* v = codes + 4 * h;
    TransposeCodes(v[0], v[1], v[2], v[3], out.codes + 4 * h);
  }
}

// The eighth sign of each seven in the bytes, which makes the number of minus signs even.
[[gnu::always_inline]] inline __m256i AddEvenSigns(__m256i sevens) {
  __m256i odd = _mm256_xor_si256(sevens, HighNibbles(sevens));
  odd = _mm256_xor_si256(odd, _mm256_srli_epi16(odd, 2));
  odd = _mm256_xor_si256(odd, _mm256_srli_epi16(odd, 1));
  odd = _mm256_and_si256(odd, _mm256_set1_epi8(1));
  return _mm256_or_si256(sevens, _mm256_slli_epi16(odd, 7));
}

// The four fields of seven signs at the lower end of each word, as bytes.
[[gnu::always_inline]] inline __m256i SignsOfWords(__m256i words) {
  const __m256i field = _mm256_set1_epi32(0x7f);
  __m256i sevens = _mm256_and_si256(words, field);
  sevens = _mm256_or_si256(
      sevens, _mm256_and_si256(_mm256_slli_epi32(words, 1), _mm256_slli_epi32(field, 8)));
  sevens = _mm256_or_si256(
      sevens, _mm256_and_si256(_mm256_slli_epi32(words, 2), _mm256_slli_epi32(field, 16)));
  sevens = _mm256_or_si256(
      sevens, _mm256_and_si256(_mm256_slli_epi32(words, 3), _mm256_slli_epi32(field, 24)));
  return AddEvenSigns(sevens);
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

// The same for sixteen groups, of d / 8 and s in eight bytes of nibbles.
[[gnu::always_inline]] inline void ScaleOddGroups(const uint8_t* nibbles, quant::PackedHalf d,
                                                  __m256* out) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(nibbles));
  const __m128i scales =
      _mm_and_si128(_mm_unpacklo_epi8(bytes, _mm_srli_epi16(bytes, 4)), _mm_set1_epi8(15));
  ScaleGroups(_mm_add_epi8(_mm_add_epi8(scales, scales), _mm_set1_epi8(1)), d, out);
  for (int h = 0; h < 2; ++h) out[h] = _mm256_mul_ps(out[h], _mm256_set1_ps(0.125f));
}

struct UnpackIQ1_S {
  using Codes = CodeTraits<16, 31, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = sizeof(quant::IQ1_S::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ1_S::Block*>(bytes);
    const auto point = [&](int v) __attribute__((always_inline)) {
      const uint32_t high = block.high[v / 4].value() >> (3 * (v % 4)) & 7;
      return EightCoordinates(quant::kIq1Grid, block.points_low[v] | high << 8);
    };
    const auto words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.high));
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

struct UnpackIQ2_XXS {
  using Codes = SignedCodes<false>;
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
    TakeMagnitudes(magnitudes, SignsOfWords(words), out);
    ScaleOddPairs(_mm256_srli_epi32(words, 28), block.d, 0.125f, out.scales);
    return out;
  }
};

struct UnpackIQ2_XS {
  using Codes = SignedCodes<false>;
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
    TakeMagnitudes(magnitudes, AddEvenSigns(sevens), out);
    ScaleOddGroups(block.scales, block.d, out.scales);
    return out;
  }
};

struct UnpackIQ2_S {
  using Codes = SignedCodes<false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_S::Block);
  static constexpr int kScaleValues = 16;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_S::Block*>(bytes);
    const auto point = [&](int v) __attribute__((always_inline)) {
      const uint32_t high = uint32_t{block.points_high[v / 4]} >> (2 * (v % 4)) & 3;
      return EightCoordinates(quant::kIq2SGrid, block.points_low[v] | high << 8);
    };
    __m256i magnitudes[8];
    for (int g = 0; g < 8; ++g) {
      const int v = 4 * g;
      magnitudes[g] = _mm256_setr_epi64x(point(v), point(v + 1), point(v + 2), point(v + 3));
    }
    WeightBlock out;
    TakeMagnitudes(magnitudes, LoadBytes32(block.signs), out);
    ScaleOddGroups(block.scales, block.d, out.scales);
    return out;
  }
};

struct UnpackIQ3_XXS {
  using Codes = SignedCodes<false>;
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
    TakeMagnitudes(magnitudes, SignsOfWords(words), out);
    ScaleOddPairs(_mm256_srli_epi32(words, 28), block.d, 0.25f, out.scales);
    return out;
  }
};

struct UnpackIQ3_S {
  using Codes = SignedCodes<false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ3_S::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ3_S::Block*>(bytes);
    const auto point = [&](int v) __attribute__((always_inline)) {
      const uint32_t high = uint32_t{block.points_high[v / 8]} >> (v % 8) & 1;
      return FourCoordinates(quant::kIq3SGrid, block.points_low[v] | high << 8);
    };
    __m256i magnitudes[8];
    for (int g = 0; g < 8; ++g) {
      const int v = 8 * g;
      magnitudes[g] = _mm256_setr_epi32(point(v), point(v + 1), point(v + 2), point(v + 3),
                                        point(v + 4), point(v + 5), point(v + 6), point(v + 7));
    }
    int nibbles;
    std::memcpy(&nibbles, block.scales, sizeof(nibbles));
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i scales = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(nibbles), shifts),
                                            _mm256_set1_epi32(15));
    WeightBlock out;
    TakeMagnitudes(magnitudes, LoadBytes32(block.signs), out);
    ScaleOddPairs(scales, block.d, 1.0f, out.scales);
    return out;
  }
};
