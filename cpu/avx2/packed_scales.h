// Scales of 6 bits in bytes, for the x86 instruction sets that have AVX2 and BMI2. Included inside
// the target region of matmul.cpp.

// The sixteen scales of a block of Q3_K (quant/q3_k.h), less 32.
[[gnu::always_inline]] inline __m128i PackedScales(const quant::Q3_K::Block& block) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block.scales_low));
  const __m128i low =
      _mm_and_si128(_mm_unpacklo_epi64(bytes, _mm_srli_epi16(bytes, 4)), _mm_set1_epi8(15));
  int word;
  std::memcpy(&word, block.scales_high, sizeof(word));
  const __m128i high = _mm_and_si128(
      _mm_srlv_epi32(_mm_set1_epi32(word), _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
  return _mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(high, 4)), _mm_set1_epi8(32));
}

// The eight scales of a block of IQ4_XS (quant/iq4_xs.h), less 32.
[[gnu::always_inline]] inline __m128i PackedScales(const quant::IQ4_XS::Block& block) {
  uint32_t low;
  uint16_t high;
  std::memcpy(&low, block.scales_low, sizeof(low));
  std::memcpy(&high, block.scales_high, sizeof(high));
  const uint64_t bytes = _pdep_u64(low, 0x0f0f0f0f0f0f0f0f) | _pdep_u64(high, 0x3030303030303030);
  return _mm_sub_epi8(_mm_cvtsi64_si128(static_cast<long long>(bytes)), _mm_set1_epi8(32));
}
