// The steps that the unpackers of this folder share. Included inside the target region of
// matmul.cpp.

inline __m128i LoadBytes16(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

inline __m256i LoadBytes32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

inline __m256i LowNibbles(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(0x0f)); }
inline __m256i HighNibbles(__m256i bytes) { return LowNibbles(_mm256_srli_epi16(bytes, 4)); }

// 32 consecutive codes from 16 bytes: the low halves, then the high halves.
[[gnu::always_inline]] inline __m256i NibblesOf16(const void* p) {
  const __m128i bytes = LoadBytes16(p);
  return LowNibbles(
      _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1));
}

inline int LoadHalf(const std::byte* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return half;
}

// The half that begins each of four blocks of kStride bytes, one block per pair of groups of a
// half.
template <int kStride>
[[gnu::always_inline]] inline __m256 LoadPairHalves(const std::byte* blocks) {
  __m128i halves = _mm_cvtsi32_si128(LoadHalf(blocks));
  halves = _mm_insert_epi16(halves, LoadHalf(blocks + 1 * kStride), 1);
  halves = _mm_insert_epi16(halves, LoadHalf(blocks + 2 * kStride), 2);
  halves = _mm_insert_epi16(halves, LoadHalf(blocks + 3 * kStride), 3);
  return _mm256_cvtph_ps(_mm_unpacklo_epi64(halves, halves));
}

[[gnu::always_inline]] inline __m256 BroadcastHalf(quant::PackedHalf half) {
  return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(half.bits())));
}

inline __m256 Negate(__m256 v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }
