// Formats whose codes name points of a grid, for AVX2 and AVX-VNNI with fewer than 64 tokens:
// quant/formats/iq1_s.h, quant/formats/iq1_m.h, quant/formats/iq2_xxs.h, quant/formats/iq2_xs.h,
// quant/formats/iq2_s.h, quant/formats/iq3_xxs.h, quant/formats/iq3_s.h, in the orders of
// point_blocks.inl. Included inside the target region of matmul.cpp, after unpack_pieces.inl and
// packed_scales.inl.
//
// A core waits for its loads here: it starts two or three in a cycle and has at most 72 under way.
// So numbers of points are read several at a time, or made in a vector, and taken apart in general
// registers. Points are inserted as they are: tables of 16-bit words, which are to be spread
// afterwards, took as long, and VPGATHERDD and VPGATHERDQ longer.

// 32 bytes, 16 from either place.
[[gnu::always_inline]] inline __m256i LoadHalves(const void* lower, const void* upper) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(LoadBytes16(lower)), LoadBytes16(upper), 1);
}

[[gnu::always_inline]] inline float ValueOf(quant::PackedHalf half) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half.bits())));
}

// Numbers of kBits each in one general register, the lowest first.
template <int kBits>
struct PointNumbersOf {
  using Word = std::conditional_t<kBits == 8, uint32_t, uint64_t>;
  Word word;

  [[gnu::always_inline]] explicit PointNumbersOf(Word numbers) : word(numbers) {
    asm("" : "+r"(word));  // or GCC 12 reads every number by itself
  }
  [[gnu::always_inline]] static PointNumbersOf At(const void* numbers) {
    Word word;
    std::memcpy(&word, numbers, sizeof(word));
    return PointNumbersOf(word);
  }
  [[gnu::always_inline]] int64_t operator[](int k) const {
    return static_cast<int64_t>(word >> (kBits * k) & ((Word{1} << kBits) - 1));
  }
};

// The four numbers of 16 bits in a 64-bit word of a vector.
[[gnu::always_inline]] inline PointNumbersOf<16> PointNumbersIn(__m256i vector, int word) {
  return PointNumbersOf<16>(static_cast<uint64_t>(vector[word]));
}

// Points of eight values in LaneOrder::kPoints: numbers_of(pair) has the numbers of its four, each
// times 8 / kUnit.
template <int kUnit = 8, class Table, class NumbersOf>
[[gnu::always_inline]] inline void LoadEights(const Table& table, NumbersOf numbers_of,
                                              __m256i* out) {
  static_assert(sizeof(table.points[0]) == 8);
  const int8_t* base = table.points[0];
#pragma GCC unroll 2
  for (int g = 0; g < 2; ++g) {
    const auto a = numbers_of(2 * g);
    const auto b = numbers_of(2 * g + 1);
    const auto c = numbers_of(2 * g + 4);
    const auto d = numbers_of(2 * g + 5);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const auto at = [&](int64_t number) __attribute__((always_inline)) {
        return reinterpret_cast<const __m128i*>(base + kUnit * number);
      };
      const __m128 lower = _mm_castsi128_ps(_mm_loadl_epi64(at(a[k])));
      const __m128 upper = _mm_castsi128_ps(_mm_loadl_epi64(at(c[k])));
      out[4 * g + k] = _mm256_setr_m128i(
          _mm_castps_si128(_mm_loadh_pi(lower, reinterpret_cast<const __m64*>(at(b[k])))),
          _mm_castps_si128(_mm_loadh_pi(upper, reinterpret_cast<const __m64*>(at(d[k])))));
    }
  }
}

// Points of four values in LaneOrder::kQuads: numbers_of(pair, half) has four of its eight numbers.
template <class Table, class NumbersOf>
[[gnu::always_inline]] inline void LoadQuads(const Table& table, NumbersOf numbers_of,
                                             __m256i* out) {
  static_assert(sizeof(table.points[0]) == 4);
  const int8_t* base = table.points[0];
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    __m256i* v = out + 4 * half;
    __m128i halves[2][4];
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      const auto a = numbers_of(4 * u, half);
      const auto b = numbers_of(4 * u + 1, half);
      const auto c = numbers_of(4 * u + 2, half);
      const auto d = numbers_of(4 * u + 3, half);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const auto at = [&](int64_t number) __attribute__((always_inline)) {
          int point;
          std::memcpy(&point, base + 4 * number, sizeof(point));
          return point;
        };
        __m128i four = _mm_cvtsi32_si128(at(a[k]));
        four = _mm_insert_epi32(four, at(b[k]), 1);
        four = _mm_insert_epi32(four, at(c[k]), 2);
        halves[u][k] = _mm_insert_epi32(four, at(d[k]), 3);
      }
    }
    for (int k = 0; k < 4; ++k) v[k] = _mm256_setr_m128i(halves[0][k], halves[1][k]);
  }
}

// Numbers of 16 bits, four for each pair in the order of points.
struct JoinedNumbers {
  __m256i vectors[2];

  [[gnu::always_inline]] PointNumbersOf<16> Of(int pair) const {
    return PointNumbersIn(vectors[pair / 2 % 2], pair % 2 + pair / 4 * 2);
  }
};

// The lower bytes of the numbers of points, for g = 0 and 1 as 16-bit words.
[[gnu::always_inline]] inline __m256i LowBytes(__m256i bytes, int g) {
  return g == 0 ? _mm256_unpacklo_epi8(bytes, _mm256_setzero_si256())
                : _mm256_unpackhi_epi8(bytes, _mm256_setzero_si256());
}

// The operand of VPSHUFB that takes, from 16 bytes in both halves and in the order of points, the
// 16-bit words of each pair from byte(pair, k) and the byte behind it, or, where kBytes is 1, a
// zero.
template <int kBytes, class Byte>
[[gnu::always_inline]] inline __m256i WordsOfPairs(int g, Byte byte) {
  const auto pair = [&](int p) __attribute__((always_inline)) {
    uint64_t word = 0;
    for (int k = 0; k < 4; ++k) {
      const auto first = static_cast<uint64_t>(byte(p, k));
      word |= (first | (kBytes == 2 ? first + 1 : 0x80) << 8) << (16 * k);
    }
    return static_cast<int64_t>(word);
  };
  return _mm256_setr_epi64x(pair(2 * g), pair(2 * g + 1), pair(2 * g + 4), pair(2 * g + 5));
}

// The eighth sign of each seven in the bytes, which makes the number of minus signs even.
[[gnu::always_inline]] inline __m256i AddEighthSigns(__m256i sevens) {
  const char odd = static_cast<char>(0x80);
  const __m256i parities = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, odd, odd, 0, odd, 0, 0, odd, odd, 0, 0, odd, 0, odd, odd, 0));
  const __m256i low = _mm256_shuffle_epi8(parities, LowNibbles(sevens));
  const __m256i high = _mm256_shuffle_epi8(parities, HighNibbles(sevens));
  return _mm256_xor_si256(sevens, _mm256_xor_si256(low, high));
}

// The four fields of seven signs at the lower end of each word, as bytes with the eighth.
[[gnu::always_inline]] inline __m256i SignsOfFields(__m256i words) {
  const __m256i halves =
      _mm256_or_si256(_mm256_and_si256(words, _mm256_set1_epi32(0x3fff)),
                      _mm256_and_si256(_mm256_slli_epi32(words, 2), _mm256_set1_epi32(0x3fff0000)));
  const __m256i sevens = _mm256_or_si256(
      _mm256_and_si256(halves, _mm256_set1_epi32(0x7f007f)),
      _mm256_and_si256(_mm256_add_epi32(halves, halves), _mm256_set1_epi32(0x7f007f00)));
  return AddEighthSigns(sevens);
}

// Signs of points of eight and of four values, as SignsOf takes them.
[[gnu::always_inline]] inline void PutSignsOfEights(__m256i bytes, WeightBlock& out) {
  const SignWords words(bytes);
  out.signs[0] = _mm256_unpacklo_epi8(words.even, words.odd);
  out.signs[1] = _mm256_unpackhi_epi8(words.even, words.odd);
}
[[gnu::always_inline]] inline void PutSignsOfFours(__m256i bytes, WeightBlock& out) {
  const SignWords words(bytes);
  const __m256i lower = _mm256_set1_epi16(0xff);
  out.signs[0] =
      _mm256_or_si256(_mm256_and_si256(words.even, lower), _mm256_slli_epi16(words.odd, 8));
  out.signs[1] =
      _mm256_or_si256(_mm256_srli_epi16(words.even, 8), _mm256_andnot_si256(lower, words.odd));
}

// Factors 2 s + 1 of the sixteen groups, from their scales as bytes.
[[gnu::always_inline]] inline void PutOddFactors(__m128i scales, WeightBlock& out) {
  const __m128i odd = _mm_add_epi8(_mm_add_epi8(scales, scales), _mm_set1_epi8(1));
  const __m256i both = _mm256_broadcastsi128_si256(odd);
#pragma GCC unroll 2
  for (int g = 0; g < 2; ++g) {
    const auto group = [](int pair, int k) { return 2 * pair + k / 2; };
    out.factors[g] = _mm256_shuffle_epi8(both, WordsOfPairs<1>(g, group));
  }
}

// 2 s + 1.
[[gnu::always_inline]] inline __m256i OddScales(__m256i scales) {
  return _mm256_or_si256(_mm256_add_epi32(scales, scales), _mm256_set1_epi32(1));
}

struct PointsIQ1_S {
  using Codes = CodeTraits<0, 2, false, LaneOrder::kDigits>;
  static constexpr int64_t kBytes = sizeof(quant::IQ1_S::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ1_S::Block*>(bytes);
    const __m256i low = LoadBytes32(block.points_low);
    const __m256i words = LoadTwice(block.high);
    WeightBlock out;
    JoinedNumbers numbers;
#pragma GCC unroll 2
    for (int g = 0; g < 2; ++g) {
      const auto own = [](int pair, int /*k*/) { return 2 * pair; };
      const __m256i four = _mm256_shuffle_epi8(words, WordsOfPairs<2>(g, own));
      // Field k to bit 11, above a byte that is shifted as far as its eights of bytes want it.
      const __m256i fields = _mm256_mullo_epi16(four, _mm256_set1_epi64x(0x0004002001000800));
      numbers.vectors[g] = _mm256_or_si256(_mm256_and_si256(fields, _mm256_set1_epi16(0x3800)),
                                           _mm256_slli_epi16(LowBytes(low, g), 3));
      const __m256i twice = _mm256_and_si256(_mm256_srli_epi16(four, 11), _mm256_set1_epi16(14));
      out.factors[g] = _mm256_or_si256(twice, _mm256_set1_epi16(1));
      const __m256i minus = _mm256_srai_epi16(four, 15);
      out.signs[g] = _mm256_add_epi16(_mm256_add_epi16(minus, minus), _mm256_set1_epi16(-7));
    }
    const auto of = [&](int pair) __attribute__((always_inline)) { return numbers.Of(pair); };
    LoadEights<1>(quant::kIq1Digits, of, out.codes);
    out.unit = ValueOf(block.d) * 0.125f;
    return out;
  }
};

struct PointsIQ1_M {
  using Codes = PointsIQ1_S::Codes;
  static constexpr int64_t kBytes = sizeof(quant::IQ1_M::Block);

  // The upper four bits of four words.
  static quant::PackedHalf Scale(uint64_t words) {
    const uint64_t bits =
        (words >> 12 & 0xf) | (words >> 24 & 0xf0) | (words >> 36 & 0xf00) | (words >> 48 & 0xf000);
    return quant::PackedHalf::FromBits(static_cast<uint16_t>(bits));
  }

  // Unpacks four scales of three bits from each of four 16-bit words, one scale to a byte.
  [[gnu::always_inline]] static __m128i Scales(__m128i words) {
    const __m128i low = _mm_set1_epi16(7);
    const __m128i high = _mm_set1_epi16(0x700);
    const __m128i first =
        _mm_or_si128(_mm_and_si128(words, low), _mm_and_si128(_mm_slli_epi16(words, 5), high));
    const __m128i last = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(words, 6), low),
                                      _mm_and_si128(_mm_srli_epi16(words, 1), high));
    return _mm_unpacklo_epi16(first, last);
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ1_M::Block*>(bytes);
    uint64_t scales;
    std::memcpy(&scales, block.scales, sizeof(scales));
    const __m256i low = LoadBytes32(block.points_low);
    const __m256i nibbles = LoadTwice(block.points_high);
    WeightBlock out;
    JoinedNumbers numbers;
#pragma GCC unroll 2
    for (int g = 0; g < 2; ++g) {
      const auto own = [](int pair, int k) { return 2 * pair + k / 2; };
      // Nibble k to bit 11, as above; its upper bit, which says minus, is bit 14.
      const __m256i fields = _mm256_mullo_epi16(
          _mm256_shuffle_epi8(nibbles, WordsOfPairs<1>(g, own)), _mm256_set1_epi32(0x00800800));
      numbers.vectors[g] = _mm256_or_si256(_mm256_and_si256(fields, _mm256_set1_epi16(0x3800)),
                                           _mm256_slli_epi16(LowBytes(low, g), 3));
      const __m256i minus = _mm256_and_si256(_mm256_srli_epi16(fields, 13), _mm256_set1_epi16(2));
      out.signs[g] = _mm256_sub_epi16(_mm256_set1_epi16(-7), minus);
    }
    PutOddFactors(Scales(_mm_cvtsi64_si128(static_cast<int64_t>(scales))), out);
    const auto of = [&](int pair) __attribute__((always_inline)) { return numbers.Of(pair); };
    LoadEights<1>(quant::kIq1Digits, of, out.codes);
    out.unit = ValueOf(Scale(scales)) * 0.125f;
    return out;
  }
};

// Magnitudes of at most 43.
using EightsCodes = CodeTraits<0, 43, false, LaneOrder::kPoints>;

struct PointsIQ2_XXS {
  using Codes = EightsCodes;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_XXS::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_XXS::Block*>(bytes);
    const auto* groups = block.groups;
    // Every other word.
    const __m256i words =
        OddLanes(LoadHalves(groups, groups + 4), LoadHalves(groups + 2, groups + 6));
    WeightBlock out;
    PutSignsOfEights(SignsOfFields(words), out);
    const __m256i odd = OddScales(_mm256_srli_epi32(words, 28));
    const __m256i factors = _mm256_or_si256(odd, _mm256_slli_epi32(odd, 16));
    out.factors[0] = _mm256_shuffle_epi32(factors, 0x50);
    out.factors[1] = _mm256_shuffle_epi32(factors, 0xfa);
    const auto of = [&](int pair) __attribute__((always_inline)) {
      return PointNumbersOf<8>::At(groups[pair].points);
    };
    LoadEights(quant::kIq2XxsGrid, of, out.codes);
    out.unit = ValueOf(block.d) * 0.125f;
    return out;
  }
};

struct PointsIQ2_XS {
  using Codes = EightsCodes;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_XS::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_XS::Block*>(bytes);
    const auto* vectors = block.vectors;
    const __m256i first = LoadHalves(vectors, vectors + 16);
    const __m256i second = LoadHalves(vectors + 8, vectors + 24);
    const __m256i sevens =
        _mm256_packus_epi16(_mm256_srli_epi16(first, 9), _mm256_srli_epi16(second, 9));
    WeightBlock out;
    PutSignsOfEights(AddEighthSigns(sevens), out);
    PutOddFactors(SixteenNibbles(block.scales), out);
    const auto of = [&](int pair) __attribute__((always_inline)) {
      uint64_t word;
      std::memcpy(&word, vectors + 4 * pair, sizeof(word));
      return PointNumbersOf<16>(word & 0x01ff01ff01ff01ff);
    };
    LoadEights(quant::kIq2XsGrid, of, out.codes);
    out.unit = ValueOf(block.d) * 0.125f;
    return out;
  }
};

struct PointsIQ2_S {
  using Codes = EightsCodes;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_S::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_S::Block*>(bytes);
    const __m256i low = LoadBytes32(block.points_low);
    const __m256i high = _mm256_broadcastq_epi64(LoadBytes8(block.points_high));
    WeightBlock out;
    JoinedNumbers numbers;
#pragma GCC unroll 2
    for (int g = 0; g < 2; ++g) {
      const auto own = [](int pair, int /*k*/) { return pair; };
      // Field k to bit 8.
      const __m256i fields = _mm256_mullo_epi16(_mm256_shuffle_epi8(high, WordsOfPairs<1>(g, own)),
                                                _mm256_set1_epi64x(0x0004001000400100));
      numbers.vectors[g] =
          _mm256_or_si256(_mm256_and_si256(fields, _mm256_set1_epi16(0x300)), LowBytes(low, g));
    }
    PutSignsOfEights(LoadBytes32(block.signs), out);
    PutOddFactors(SixteenNibbles(block.scales), out);
    const auto of = [&](int pair) __attribute__((always_inline)) { return numbers.Of(pair); };
    LoadEights(quant::kIq2SGrid, of, out.codes);
    out.unit = ValueOf(block.d) * 0.125f;
    return out;
  }
};

struct PointsIQ3_XXS {
  using Codes = CodeTraits<0, 62, false, LaneOrder::kQuads>;
  static constexpr int64_t kBytes = sizeof(quant::IQ3_XXS::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ3_XXS::Block*>(bytes);
    const __m256i words = LoadBytes32(block.signs);
    WeightBlock out;
    PutSignsOfFours(SignsOfFields(words), out);
    const __m256 unit = _mm256_mul_ps(BroadcastHalf(block.d), _mm256_set1_ps(0.25f));
    const __m256i odd = OddScales(_mm256_srli_epi32(words, 28));
    out.scales[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(odd), unit);
    const auto of = [&](int pair, int half) __attribute__((always_inline)) {
      return PointNumbersOf<8>::At(block.points + 8 * pair + 4 * half);
    };
    LoadQuads(quant::kIq3XxsGrid, of, out.codes);
    return out;
  }
};

struct PointsIQ3_S {
  using Codes = CodeTraits<0, 15, false, LaneOrder::kQuads>;
  static constexpr int64_t kBytes = sizeof(quant::IQ3_S::Block);

  // Each pair has eight numbers of 16 bits. Those of pairs 4i and 4i + 2 are in vectors[2i], those
  // of pairs 4i + 1 and 4i + 3 in vectors[2i + 1].
  struct Numbers {
    __m256i vectors[4];

    [[gnu::always_inline]] explicit Numbers(const quant::IQ3_S::Block& block) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const __m256i low = LoadBytes32(block.points_low + 32 * i);
        const __m256i ninth = BitsOf(block.points_high + 4 * i);
        vectors[2 * i] = _mm256_unpacklo_epi8(low, ninth);
        vectors[2 * i + 1] = _mm256_unpackhi_epi8(low, ninth);
      }
    }

    // Bit i as byte i, 0 or 1.
    [[gnu::always_inline]] static __m256i BitsOf(const uint8_t* four) {
      int word;
      std::memcpy(&word, four, sizeof(word));
      const __m256i from =
          _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
      const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
      const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(word), from);
      return _mm256_min_epu8(_mm256_and_si256(bytes, bits), _mm256_set1_epi8(1));
    }

    [[gnu::always_inline]] PointNumbersOf<16> Of(int pair, int half) const {
      return PointNumbersIn(vectors[pair / 4 * 2 + pair % 2], pair / 2 % 2 * 2 + half);
    }
  };

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ3_S::Block*>(bytes);
    const Numbers numbers(block);
    WeightBlock out;
    PutSignsOfFours(LoadBytes32(block.signs), out);
    int nibbles;
    std::memcpy(&nibbles, block.scales, sizeof(nibbles));
    const __m256i scales =
        _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(nibbles),
                                           _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)),
                         _mm256_set1_epi32(15));
    out.scales[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(OddScales(scales)), BroadcastHalf(block.d));
    const auto of = [&](int pair, int half) __attribute__((always_inline)) {
      return numbers.Of(pair, half);
    };
    LoadQuads(quant::kIq3SGrid, of, out.codes);
    return out;
  }
};
