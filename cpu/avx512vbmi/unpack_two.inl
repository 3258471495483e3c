// Two blocks at once of the formats with large grids, for AVX-512 VBMI: quant/formats/iq1_s.h,
// quant/formats/iq1_m.h, quant/formats/iq2_s.h. Included inside the target region of matmul.cpp,
// after spread_points.inl and cpu/avx512vnni/unpack_grids.inl, whose unpackers serve single blocks.
//
// VPERMI2B looks up a byte of 64 points, those of two blocks; a point has two bytes of digits.

// The lower and the upper bytes of the 16-bit words of a and b, so that unpacking a vector with
// another of the same order brings the words of a, and of b, into their order again.
struct SplitOrder {
  alignas(64) uint8_t bytes[64] = {};
  constexpr explicit SplitOrder(int byte) {
    for (int i = 0; i < 64; ++i) {
      const int word = i / 16 * 8 + i % 8;
      bytes[i] = static_cast<uint8_t>(i % 16 / 8 * 64 + 2 * word + byte);
    }
  }
};
constexpr SplitOrder kLowerBytes(0);
constexpr SplitOrder kUpperBytes(1);

struct SplitNumbers {
  __m512i lower, upper;

  [[gnu::always_inline]] SplitNumbers(__m512i a, __m512i b)
      : lower(_mm512_permutex2var_epi8(a, _mm512_load_si512(kLowerBytes.bytes), b)),
        upper(_mm512_permutex2var_epi8(a, _mm512_load_si512(kUpperBytes.bytes), b)) {}

  // The entries of a table of kCount bytes, 128 times a power of two.
  template <int kCount>
  [[gnu::always_inline]] __m512i LookUp(const uint8_t* table) const {
    if constexpr (kCount == 128) {
      return LookUp128(table, lower);
    } else {
      constexpr int kHalf = kCount / 2;
      const __mmask64 second =
          kHalf == 128
              ? _mm512_movepi8_mask(lower)
              : _mm512_test_epi8_mask(upper, _mm512_set1_epi8(static_cast<char>(kHalf / 256)));
      return _mm512_mask_blend_epi8(second, LookUp<kHalf>(table), LookUp<kHalf>(table + kHalf));
    }
  }
};

// The packed points of two times 32 numbers of 11 bits; the bits above do not count.
[[gnu::always_inline]] inline void LookUpTernary(__m512i a, __m512i b, __m512i* packed) {
  const auto& points = quant::kIq1Packed;
  const SplitNumbers numbers(a, b);
  const __m512i low = numbers.LookUp<2048>(points.lower);
  const __m512i nibble = _mm512_set1_epi8(0x0f);
  const __m512i sixteens =
      SelectBits(nibble, _mm512_srli_epi16(numbers.lower, 4), _mm512_slli_epi16(numbers.upper, 4));
  const __mmask64 last = _mm512_cmpge_epu8_mask(_mm512_and_si512(numbers.lower, nibble),
                                                LookUp128(points.first_count, sixteens));
  const __m512i high = _mm512_mask_blend_epi8(last, LookUp128(points.first, sixteens),
                                              LookUp128(points.last, sixteens));
  packed[0] = _mm512_unpacklo_epi8(low, high);
  packed[1] = _mm512_unpackhi_epi8(low, high);
}

// Ternary digits, with a shift for each pair or for each point instead of signs.
struct TernaryInPairs : EightsInPairs {
  static constexpr int DigitBit(int digit) { return 2 * digit; }
  static constexpr int SignBit(int /*s*/, int /*byte*/) { return 15; }
};
struct TernaryInGroups : EightsInGroups {
  static constexpr int DigitBit(int digit) { return 2 * digit; }
  static constexpr int SignBit(int s, int byte) { return 16 * Word(s, byte) + 11; }
};

// The biased codes of digits, with +1 and with -1.
struct TernaryLevels {
  alignas(16) uint8_t bytes[16] = {};
  constexpr explicit TernaryLevels(int bias) {
    for (int i = 0; i < 16; ++i) {
      bytes[i] = static_cast<uint8_t>(bias + 8 * (i % 4 - 1) + ((i & 4) != 0 ? -1 : 1));
    }
  }
};
constexpr TernaryLevels kTernaryLevels(UnpackIQ1_S::Codes::kBias);

struct UnpackTwoIQ1_S : UnpackIQ1_S {
  [[gnu::always_inline]] static void UnpackTwo(const std::byte* a, const std::byte* b,
                                               WeightBlock* out) {
    const quant::IQ1_S::Block* blocks[] = {reinterpret_cast<const quant::IQ1_S::Block*>(a),
                                           reinterpret_cast<const quant::IQ1_S::Block*>(b)};
    __m512i packed[2];
    LookUpTernary(Numbers(*blocks[0]), Numbers(*blocks[1]), packed);
    const __m512i levels = _mm512_broadcast_i32x4(LoadBytes16(kTernaryLevels.bytes));
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m512i words = _mm512_cvtepu16_epi64(LoadBytes16(blocks[i]->high));
      Spread<TernaryInPairs>(packed[i], packed[i], words, levels, out[i]);
      out[i].scales = Scales(*blocks[i]);
    }
  }
};

struct UnpackTwoIQ1_M : UnpackIQ1_M {
  static_assert(UnpackIQ1_M::Codes::kBias == UnpackIQ1_S::Codes::kBias);

  [[gnu::always_inline]] static void UnpackTwo(const std::byte* a, const std::byte* b,
                                               WeightBlock* out) {
    const quant::IQ1_M::Block* blocks[] = {reinterpret_cast<const quant::IQ1_M::Block*>(a),
                                           reinterpret_cast<const quant::IQ1_M::Block*>(b)};
    const __m512i fields[] = {Fields(*blocks[0]), Fields(*blocks[1])};
    __m512i packed[2];
    LookUpTernary(fields[0], fields[1], packed);
    const __m512i levels = _mm512_broadcast_i32x4(LoadBytes16(kTernaryLevels.bytes));
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      Spread<TernaryInGroups>(packed[i], packed[i], fields[i], levels, out[i]);
      out[i].scales = Scales(*blocks[i]);
    }
  }
};

// The sign bytes of a lane lie side by side.
struct Iq2SInGroups : EightsInGroups {
  static constexpr int SignBit(int s, int byte) {
    const int word = Word(s, byte);
    return word / 2 * 32 + word % 2 * 8 + Digit(s, byte);
  }
};

struct UnpackTwoIQ2_S : UnpackIQ2_S {
  [[gnu::always_inline]] static void UnpackTwo(const std::byte* a, const std::byte* b,
                                               WeightBlock* out) {
    const quant::IQ2_S::Block* blocks[] = {reinterpret_cast<const quant::IQ2_S::Block*>(a),
                                           reinterpret_cast<const quant::IQ2_S::Block*>(b)};
    const SplitNumbers numbers(Numbers(*blocks[0]), Numbers(*blocks[1]));
    const __m512i low = numbers.LookUp<1024>(quant::kIq2SPacked.bytes[0]);
    const __m512i high = numbers.LookUp<1024>(quant::kIq2SPacked.bytes[1]);
    const __m512i packed[] = {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      Spread<Iq2SInGroups>(packed[i], packed[i], Signs(*blocks[i]), kIq2SignedLevels.Everywhere(),
                           out[i]);
      out[i].scales = Scales(*blocks[i]);
    }
  }
};
