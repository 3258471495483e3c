// The steps that the unpackers of this folder share. Included inside the target region of
// matmul.cpp.

inline __m128i LoadBytes8(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }

inline __m128i LoadBytes16(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

inline __m256i LoadBytes32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

inline __m512i Join(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

inline __m512i Join(__m128i v0, __m128i v1, __m128i v2, __m128i v3) {
  return Join(_mm256_inserti128_si256(_mm256_castsi128_si256(v0), v1, 1),
              _mm256_inserti128_si256(_mm256_castsi128_si256(v2), v3, 1));
}

// a | (b & mask), mask per byte
inline __m512i OrMasked(__m512i a, __m512i b, char mask) {
  return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8(mask), 0xf8);
}

// The bits of a where those of mask are set, else those of b.
inline __m512i SelectBits(__m512i mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

inline __m512 Negate(__m512 v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f)); }

// Vector s of the block = 4-bit codes of the 32-bit pieces first[lane] + s of (low, high), after a
// shift by shift[lane] bits.
[[gnu::always_inline]] inline void PickNibbles(__m512i low, __m512i high, __m512i first,
                                               __m512i shift, WeightBlock& out) {
  const __m512i mask = _mm512_set1_epi8(0x0f);
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i second = _mm512_add_epi32(first, one);
  const __m512i third = _mm512_add_epi32(second, one);
  const __m512i fourth = _mm512_add_epi32(third, one);
  out.codes0 =
      _mm512_and_si512(_mm512_srlv_epi32(_mm512_permutex2var_epi32(low, first, high), shift), mask);
  out.codes1 = _mm512_and_si512(
      _mm512_srlv_epi32(_mm512_permutex2var_epi32(low, second, high), shift), mask);
  out.codes2 =
      _mm512_and_si512(_mm512_srlv_epi32(_mm512_permutex2var_epi32(low, third, high), shift), mask);
  out.codes3 = _mm512_and_si512(
      _mm512_srlv_epi32(_mm512_permutex2var_epi32(low, fourth, high), shift), mask);
}

inline int LoadHalf(const std::byte* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return half;
}

// The half that begins each of eight blocks of kStride bytes, for the two groups of the block, in
// lane order: blocks 0, 2, 4, 6 twice, then 1, 3, 5, 7 twice.
template <int kStride>
[[gnu::always_inline]] inline __m512 LoadPairHalves(const std::byte* blocks) {
  if constexpr (3 * kStride < 64) {  // the halves of four blocks lie within 64 bytes
    constexpr short k1 = kStride / 2, k2 = kStride, k3 = 3 * kStride / 2;
    const __m256i words = _mm256_setr_epi16(0, k2, 32, 32 + k2, 0, k2, 32, 32 + k2,  //
                                            k1, k3, 32 + k1, 32 + k3, k1, k3, 32 + k1, 32 + k3);
    const __m512i halves =
        _mm512_permutex2var_epi16(_mm512_loadu_si512(blocks), _mm512_castsi256_si512(words),
                                  _mm512_loadu_si512(blocks + 4 * kStride));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
  }
  __m128i halves = _mm_cvtsi32_si128(LoadHalf(blocks));
  halves = _mm_insert_epi16(halves, LoadHalf(blocks + 2 * kStride), 1);
  halves = _mm_insert_epi16(halves, LoadHalf(blocks + 4 * kStride), 2);
  halves = _mm_insert_epi16(halves, LoadHalf(blocks + 6 * kStride), 3);
  halves = _mm_insert_epi16(halves, LoadHalf(blocks + 1 * kStride), 4);
  halves = _mm_insert_epi16(halves, LoadHalf(blocks + 3 * kStride), 5);
  halves = _mm_insert_epi16(halves, LoadHalf(blocks + 5 * kStride), 6);
  halves = _mm_insert_epi16(halves, LoadHalf(blocks + 7 * kStride), 7);
  return _mm512_cvtph_ps(_mm256_permute4x64_epi64(_mm256_castsi128_si256(halves), 0x50));
}

[[gnu::always_inline]] inline __m512 BroadcastHalf(quant::PackedHalf half) {
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(half.bits())));
}

// codes + 16 * the low four bits of each word, one for each code of a lane.
[[gnu::always_inline]] inline __m512i AddFourBits(__m512i codes, __m512i words) {
  const __m512i four = _mm512_and_si512(words, _mm512_set1_epi32(15));
  // Copies of the four bits 7 apart: bit i comes to bit 8i + 4, and no two meet.
  const __m512i spread = _mm512_mullo_epi32(four, _mm512_set1_epi32(0x00204081 << 4));
  return OrMasked(codes, spread, 0x10);
}
