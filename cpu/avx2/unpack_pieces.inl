// The steps that the unpackers of this folder share. Included inside the target region of
// matmul.cpp.

inline __m128i LoadBytes8(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }

inline __m128i LoadBytes16(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

inline __m256i LoadBytes32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

// 16 bytes in both halves.
inline __m256i LoadTwice(const void* p) { return _mm256_broadcastsi128_si256(LoadBytes16(p)); }

// The lower half's 64-bit words shifted to the right by `lower` bits, the upper half's by `upper`.
inline __m256i ShiftHalves(__m256i v, int lower, int upper) {
  return _mm256_srlv_epi64(v, _mm256_setr_epi64x(lower, lower, upper, upper));
}

inline __m256i LowNibbles(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(0x0f)); }
inline __m256i HighNibbles(__m256i bytes) { return LowNibbles(_mm256_srli_epi16(bytes, 4)); }

inline int LoadHalf(const std::byte* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return half;
}

// The half that begins each of four blocks that are kStride bytes apart.
template <int kStride>
[[gnu::always_inline]] inline __m128i LoadFourHalves(const std::byte* blocks) {
  __m128i halves = _mm_cvtsi32_si128(LoadHalf(blocks));
  halves = _mm_insert_epi16(halves, LoadHalf(blocks + 1 * kStride), 1);
  halves = _mm_insert_epi16(halves, LoadHalf(blocks + 2 * kStride), 2);
  return _mm_insert_epi16(halves, LoadHalf(blocks + 3 * kStride), 3);
}

// The half that begins each of four blocks as a float, in both lanes of the block's pair of groups.
template <int kStride>
[[gnu::always_inline]] inline __m256 LoadHalvesOfGroups(const std::byte* blocks) {
  const __m128i halves = LoadFourHalves<kStride>(blocks);
  return _mm256_cvtph_ps(_mm_unpacklo_epi64(halves, halves));
}

// The half that begins each of eight blocks as a float, in the block's lane of LaneOrder::kPairs.
template <int kStride>
[[gnu::always_inline]] inline __m256 LoadHalvesOfPairs(const std::byte* blocks) {
  return _mm256_cvtph_ps(_mm_unpacklo_epi64(LoadFourHalves<2 * kStride>(blocks),
                                            LoadFourHalves<2 * kStride>(blocks + kStride)));
}

[[gnu::always_inline]] inline __m256 BroadcastHalf(quant::PackedHalf half) {
  return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(half.bits())));
}

// Sixteen signed bytes times a factor.
[[gnu::always_inline]] inline void ScaleBytes(__m128i bytes, quant::PackedHalf factor,
                                              __m256* out) {
  const __m256 d = BroadcastHalf(factor);
  const __m128i upper = _mm_unpackhi_epi64(bytes, bytes);
  out[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), d);
  out[1] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(upper)), d);
}

// Sixteen signed bytes, one per group, times a factor, in LaneOrder::kGroups.
[[gnu::always_inline]] inline void ScaleGroups(__m128i groups, quant::PackedHalf factor,
                                               __m256* out) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  ScaleBytes(_mm_shuffle_epi8(groups, order), factor, out);
}

inline __m256 Negate(__m256 v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }
