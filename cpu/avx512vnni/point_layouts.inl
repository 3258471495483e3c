// Where the digits of packed points (quant/formats/iq_grids.h) and the signs beside them go in the
// four vectors of codes of a block. Included inside the target region of matmul.cpp, after
// unpack_pieces.inl and before the folder's own spread_points.inl, which defines
//
//   Spread<Layout>(low, high, signs, levels, out)   the codes of `out`: signed levels + 128, for
//                                      vectors 0 and 1 from the packed points in `low`, 2 and 3
//                                      from `high`
//   SignsOfFields<first bit>(words)    of four fields of seven bits in each 64-bit word, the lowest
//                                      at that bit: sign bytes in its lower four bytes
//   SignsOfSevens(words)               of the lower seven bits of 16-bit words: in their lower byte
//   LookUpQuads(packed, numbers, ninth, words)   the packed points of 64 numbers of eight bits, to
//                                      which `ninth` adds one each where there are 512 points: the
//                                      first four of each eight in words[0], the others in words[1]
//
// All work on 64-bit words, two lanes each: word w of a vector becomes word w of the results.

// Words of 16 bits of packed points of eight values; in LaneOrder::kPairs word s of the four is
// that of vector s. Sign bytes lie in the lower half.
struct EightsInPairs {
  static constexpr int kBits = 2;
  static constexpr int DigitBit(int digit) { return decltype(quant::kIq2XsPacked)::BitOf(digit); }
  static constexpr int Word(int s, int /*byte*/) { return s; }
  static constexpr int Digit(int /*s*/, int byte) { return byte; }
  static constexpr int SignBit(int s, int byte) { return 8 * s + byte; }
};

// Words of packed points of eight values in LaneOrder::kGroups: a lane belongs to a group of two
// points, and the 16 bits of words and of sign bytes lie as the lane's two words do.
struct EightsInGroups {
  static constexpr int kBits = 2;
  static constexpr int DigitBit(int digit) { return decltype(quant::kIq2XsPacked)::BitOf(digit); }
  static constexpr int Word(int s, int byte) { return s / 2 + byte / 4 * 2; }
  static constexpr int Digit(int s, int byte) { return s % 2 * 4 + byte % 4; }
  static constexpr int SignBit(int s, int byte) { return 16 * Word(s, byte) + Digit(s, byte); }
};

// Packed points of four values in LaneOrder::kPairs: vectors 0 and 1 take two words each of the
// first four of a pair, vectors 2 and 3 of the last four.
struct FoursInPairs {
  static constexpr int kBits = 3;
  static constexpr int DigitBit(int digit) { return decltype(quant::kIq3SPacked)::BitOf(digit); }
  static constexpr int Word(int s, int byte) { return s % 2 * 2 + byte / 4; }
  static constexpr int Digit(int /*s*/, int byte) { return byte % 4; }
  static constexpr int SignBit(int s, int byte) { return 8 * s + byte; }
};

// The levels of digits, with plus and with minus, + 128, as often as they fit 16 bytes.
template <int kBits>
struct SignedLevels {
  alignas(16) uint8_t bytes[16] = {};

  template <size_t kCount>
  constexpr explicit SignedLevels(const int8_t (&levels)[kCount]) {
    for (unsigned i = 0; i < 16; ++i) {
      const unsigned digit = i % (1u << kBits);
      const int level = digit < kCount ? levels[digit] : 0;
      bytes[i] = static_cast<uint8_t>(128 + ((i >> kBits & 1) != 0 ? -level : level));
    }
  }

  [[gnu::always_inline]] __m512i Everywhere() const {
    return _mm512_broadcast_i32x4(LoadBytes16(bytes));
  }
};
constexpr SignedLevels<2> kIq2SignedLevels(quant::kIq2Levels);
constexpr SignedLevels<3> kIq3XxsSignedLevels(quant::kIq3XxsLevels);
constexpr SignedLevels<3> kIq3SSignedLevels(quant::kIq3SLevels);

// A constant for all 64-bit words whose byte j is byte(j).
template <class Byte>
[[gnu::always_inline]] inline __m512i EveryWord(Byte byte) {
  uint64_t word = 0;
  for (int j = 0; j < 8; ++j) word |= uint64_t{static_cast<uint8_t>(byte(j))} << (8 * j);
  return _mm512_set1_epi64(static_cast<int64_t>(word));
}

// Point `number` of each 16-bit word, of a table of 256 words: the lower eight bits count.
[[gnu::always_inline]] inline __m512i LookUpWords(const uint16_t* table, __m512i numbers) {
  const auto sixty_four = [&](int i) __attribute__((always_inline)) {
    return _mm512_permutex2var_epi16(_mm512_load_si512(table + 64 * i), numbers,
                                     _mm512_load_si512(table + 64 * i + 32));
  };
  const __mmask32 odd = _mm512_test_epi16_mask(numbers, _mm512_set1_epi16(64));
  const __mmask32 upper = _mm512_test_epi16_mask(numbers, _mm512_set1_epi16(128));
  const __m512i low = _mm512_mask_blend_epi16(odd, sixty_four(0), sixty_four(1));
  const __m512i high = _mm512_mask_blend_epi16(odd, sixty_four(2), sixty_four(3));
  return _mm512_mask_blend_epi16(upper, low, high);
}
