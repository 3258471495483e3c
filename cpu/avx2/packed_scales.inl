// Scales of 6 bits in bytes, for the x86 instruction sets that have AVX2. Included inside the
// target region of matmul.cpp.

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

// The eight scales of a block of IQ4_XS (quant/iq4_xs.h), less 32, in the lower bytes. Without
// PDEP, which takes hundreds of cycles on some CPUs.
[[gnu::always_inline]] inline __m128i PackedScales(const quant::IQ4_XS::Block& block) {
  int low;
  int16_t high;
  std::memcpy(&low, block.scales_low, sizeof(low));
  std::memcpy(&high, block.scales_high, sizeof(high));
  const __m128i bytes = _mm_cvtsi32_si128(low);
  const __m128i nibbles =
      _mm_and_si128(_mm_unpacklo_epi8(bytes, _mm_srli_epi16(bytes, 4)), _mm_set1_epi8(15));
  // Bits 2k and 2k + 1 of lane k to the top and down again.
  const __m128i powers =
      _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1);
  const __m128i pairs = _mm_srli_epi16(_mm_mullo_epi16(_mm_set1_epi16(high), powers), 14);
  const __m128i scales =
      _mm_or_si128(nibbles, _mm_packus_epi16(_mm_slli_epi16(pairs, 4), _mm_setzero_si128()));
  return _mm_sub_epi8(scales, _mm_set1_epi8(32));
}
