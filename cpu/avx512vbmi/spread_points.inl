// Packed points to codes in AVX-512 VBMI, see cpu/avx512vnni/point_layouts.inl: VPMULTISHIFTQB
// brings the digit and the sign of each value to the lower bits of its byte, VPERMB looks both up.
// Included inside the target region of matmul.cpp.

// Vector s of Spread. The bits above a sign are not its own; they count for nothing, because the
// levels repeat themselves.
template <class Layout, int kVector>
[[gnu::always_inline]] inline __m512i SpreadVector(__m512i codes, __m512i signs, __m512i levels) {
  constexpr int kBits = Layout::kBits;
  const __m512i digit_bits = EveryWord([](int j) {
    return 16 * Layout::Word(kVector, j) + Layout::DigitBit(Layout::Digit(kVector, j));
  });
  const __m512i sign_bits =
      EveryWord([](int j) { return (Layout::SignBit(kVector, j) - kBits) & 63; });
  const __m512i both = SelectBits(_mm512_set1_epi8((1 << kBits) - 1),
                                  _mm512_multishift_epi64_epi8(digit_bits, codes),
                                  _mm512_multishift_epi64_epi8(sign_bits, signs));
  return _mm512_permutexvar_epi8(both, levels);
}

template <class Layout>
[[gnu::always_inline]] inline void Spread(__m512i low, __m512i high, __m512i signs, __m512i levels,
                                          WeightBlock& out) {
  out.codes0 = SpreadVector<Layout, 0>(low, signs, levels);
  out.codes1 = SpreadVector<Layout, 1>(low, signs, levels);
  out.codes2 = SpreadVector<Layout, 2>(high, signs, levels);
  out.codes3 = SpreadVector<Layout, 3>(high, signs, levels);
}

// quant::EvenSigns of all seven bits.
struct EvenSignsTable {
  alignas(64) uint8_t bytes[128] = {};
  constexpr EvenSignsTable() {
    for (int i = 0; i < 128; ++i) bytes[i] = static_cast<uint8_t>(quant::EvenSigns(i));
  }
};
constexpr EvenSignsTable kEvenSigns;

// The entries, of a table of 128 bytes, for the lower seven bits of every byte.
[[gnu::always_inline]] inline __m512i LookUp128(const uint8_t* table, __m512i numbers) {
  return _mm512_permutex2var_epi8(_mm512_load_si512(table), numbers, _mm512_load_si512(table + 64));
}

template <int kFirstBit>
[[gnu::always_inline]] inline __m512i SignsOfFields(__m512i words) {
  const __m512i bits = EveryWord([](int j) { return j < 4 ? kFirstBit + 7 * j : 0; });
  return LookUp128(kEvenSigns.bytes, _mm512_multishift_epi64_epi8(bits, words));
}

[[gnu::always_inline]] inline __m512i SignsOfSevens(__m512i words) {
  return LookUp128(kEvenSigns.bytes, words);
}

template <class Packed>
[[gnu::always_inline]] inline void LookUpQuads(const Packed& packed, const uint8_t* numbers,
                                               uint64_t ninth, __m512i* words) {
  constexpr bool kNine = sizeof(packed.words) > 512;
  const __m512i bytes = _mm512_loadu_si512(numbers);
  const __mmask64 eighth = _mm512_movepi8_mask(bytes);
  const auto look_up = [&](const uint8_t* table) __attribute__((always_inline)) {
    __m512i found =
        _mm512_mask_blend_epi8(eighth, LookUp128(table, bytes), LookUp128(table + 128, bytes));
    if constexpr (kNine) {
      const __m512i upper = _mm512_mask_blend_epi8(eighth, LookUp128(table + 256, bytes),
                                                   LookUp128(table + 384, bytes));
      found = _mm512_mask_blend_epi8(ninth, found, upper);
    }
    // So that unpacking brings the first four of both pairs of 16 bytes together.
    return _mm512_shuffle_epi32(found, _MM_PERM_DBCA);
  };
  const __m512i lower = look_up(packed.bytes[0]);
  const __m512i upper = look_up(packed.bytes[1]);
  words[0] = _mm512_unpacklo_epi8(lower, upper);
  words[1] = _mm512_unpackhi_epi8(lower, upper);
}
