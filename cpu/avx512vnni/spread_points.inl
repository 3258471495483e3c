// Packed points to codes without AVX-512 VBMI, see point_layouts.inl: bytes are brought to their
// places by VPSHUFB, digits to the lower bits by shifts of 16-bit words, signs are masks.

// The operand of VPSHUFB that takes byte j of each 64-bit word from byte `from(j)` of the word.
template <class From>
[[gnu::always_inline]] inline __m512i BytesOfWords(From from) {
  const __m512i upper = _mm512_set_epi64(0x0808080808080808, 0, 0x0808080808080808, 0,
                                         0x0808080808080808, 0, 0x0808080808080808, 0);
  return _mm512_add_epi8(EveryWord(from), upper);
}

// Vector s of Spread. The signed levels begin with those of plus.
template <class Layout, int kVector>
[[gnu::always_inline]] inline __m512i SpreadVector(__m512i codes, __m512i signs, __m512i levels) {
  const __m512i words = _mm512_shuffle_epi8(
      codes, BytesOfWords([](int j) { return 2 * Layout::Word(kVector, j) + j % 2; }));
  const __m512i shifts =
      EveryWord([](int j) { return j % 2 == 0 ? Layout::DigitBit(Layout::Digit(kVector, j)) : 0; });
  const __m512i digits = _mm512_and_si512(_mm512_srlv_epi16(words, shifts),
                                          _mm512_set1_epi8((1 << Layout::kBits) - 1));
  const __m512i sign_bytes = _mm512_shuffle_epi8(
      signs, BytesOfWords([](int j) { return Layout::SignBit(kVector, j) / 8; }));
  const __mmask64 minus = _mm512_test_epi8_mask(
      sign_bytes, EveryWord([](int j) { return 1 << Layout::SignBit(kVector, j) % 8; }));
  const __m512i plus = _mm512_shuffle_epi8(levels, digits);
  return _mm512_mask_sub_epi8(plus, minus, _mm512_setzero_si512(), plus);
}

template <class Layout>
[[gnu::always_inline]] inline void Spread(__m512i low, __m512i high, __m512i signs, __m512i levels,
                                          WeightBlock& out) {
  out.codes0 = SpreadVector<Layout, 0>(low, signs, levels);
  out.codes1 = SpreadVector<Layout, 1>(low, signs, levels);
  out.codes2 = SpreadVector<Layout, 2>(high, signs, levels);
  out.codes3 = SpreadVector<Layout, 3>(high, signs, levels);
}

// The eighth sign of the lower seven bits of every byte makes the number of minus signs even.
[[gnu::always_inline]] inline __m512i AddEvenSigns(__m512i sevens) {
  const __m512i nibble = _mm512_set1_epi8(0x0f);
  const char o = static_cast<char>(0x80);
  const __m512i odd_of_four =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, o, o, 0, o, 0, 0, o, o, 0, 0, o, 0, o, o, 0));
  const __m512i odd_of_three =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, o, o, 0, o, 0, 0, o, 0, o, o, 0, o, 0, 0, o));
  const __m512i low = _mm512_shuffle_epi8(odd_of_four, _mm512_and_si512(sevens, nibble));
  const __m512i high =
      _mm512_shuffle_epi8(odd_of_three, _mm512_and_si512(_mm512_srli_epi16(sevens, 4), nibble));
  return SelectBits(_mm512_set1_epi8(0x7f), sevens, _mm512_xor_si512(low, high));
}

template <int kFirstBit>
[[gnu::always_inline]] inline __m512i SignsOfFields(__m512i words) {
  words = kFirstBit == 0 ? words : _mm512_srli_epi64(words, kFirstBit);
  const __m512i halves = SelectBits(_mm512_set1_epi32(0xffff), words, _mm512_slli_epi32(words, 2));
  const __m512i bytes =
      SelectBits(_mm512_set1_epi32(0xff00ff), halves, _mm512_slli_epi32(halves, 1));
  return AddEvenSigns(bytes);
}

[[gnu::always_inline]] inline __m512i SignsOfSevens(__m512i words) { return AddEvenSigns(words); }

template <class Packed>
[[gnu::always_inline]] inline void LookUpQuads(const Packed& packed, const uint8_t* numbers,
                                               uint64_t ninth, __m512i* words) {
  constexpr bool kNine = sizeof(packed.words) > 512;
  const __m512i bytes = _mm512_loadu_si512(numbers);
  const __m128i low = _mm_setr_epi8(0, -1, 1, -1, 2, -1, 3, -1, 8, -1, 9, -1, 10, -1, 11, -1);
  const __m128i high = _mm_setr_epi8(4, -1, 5, -1, 6, -1, 7, -1, 12, -1, 13, -1, 14, -1, 15, -1);
  const __m128i places[] = {low, high};
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m512i four = _mm512_shuffle_epi8(bytes, _mm512_broadcast_i32x4(places[h]));
    words[h] = LookUpWords(packed.words, four);
    if constexpr (kNine) {
      const auto mask = static_cast<__mmask32>(_pext_u64(ninth, 0x0f0f0f0f0f0f0f0full << (4 * h)));
      words[h] = _mm512_mask_blend_epi16(mask, words[h], LookUpWords(packed.words + 256, four));
    }
  }
}
