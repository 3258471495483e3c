// Scales of a few bits in bytes, for the x86 instruction sets that have AVX2. Included inside the
// target region of matmul.cpp.

// The sixteen scales of a block of Q3_K (quant/formats/q3_k.h), less 32.
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

// The eight scales of a block of IQ4_XS (quant/formats/iq4_xs.h), less 32, in the lower bytes.
// Without PDEP, which takes hundreds of cycles on some CPUs.
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

// Sixteen fields of four bits, two a byte, as bytes.
[[gnu::always_inline]] inline __m128i SixteenNibbles(const uint8_t* eight) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(eight));
  return _mm_and_si128(_mm_unpacklo_epi8(bytes, _mm_srli_epi16(bytes, 4)), _mm_set1_epi8(15));
}

// Sixteen fields of two bits, four a byte, as bytes.
[[gnu::always_inline]] inline __m128i SixteenPairsOfBits(const uint8_t* four) {
  int word;
  std::memcpy(&word, four, sizeof(word));
  const __m128i words = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(word));
  const __m128i two = _mm_or_si128(words, _mm_slli_epi32(words, 6));
  return _mm_and_si128(_mm_or_si128(two, _mm_slli_epi32(two, 12)), _mm_set1_epi8(3));
}

// The sixteen scales of a block: quant/formats/iq2_k.h to quant/formats/iq6_k.h.
[[gnu::always_inline]] inline __m128i SixteenScales(const quant::IQ2_K::Block& block) {
  return _mm_sub_epi8(SixteenNibbles(block.scales), _mm_set1_epi8(8));
}
[[gnu::always_inline]] inline __m128i SixteenScales(const quant::IQ3_K::Block& block) {
  const __m128i nibbles = SixteenNibbles(block.scales);
  const __m128i odd = _mm_add_epi8(_mm_add_epi8(nibbles, nibbles), _mm_set1_epi8(1));
  const __m128i word = _mm_cvtsi32_si128(static_cast<int>(block.minus.value()));
  const __m128i from = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m128i bits = _mm_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m128i minus = _mm_cmpeq_epi8(_mm_and_si128(_mm_shuffle_epi8(word, from), bits), bits);
  return _mm_sub_epi8(_mm_xor_si128(odd, minus), minus);
}
template <class Block>
  requires requires(const Block& block) { block.scales_high; }
[[gnu::always_inline]] inline __m128i SixteenScales(const Block& block) {
  const __m128i high = _mm_slli_epi16(SixteenPairsOfBits(block.scales_high), 4);
  return _mm_sub_epi8(_mm_or_si128(SixteenNibbles(block.scales_low), high), _mm_set1_epi8(32));
}
// Bits 2i and 2i + 1 of the mask: bit i of the byte, as bytes.
[[gnu::always_inline]] inline __m128i DoubledBits(uint32_t byte) {
  const __m128i bits = _mm_setr_epi8(1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 32, 64, 64, -128, -128);
  const __m128i found = _mm_and_si128(_mm_set1_epi8(static_cast<char>(byte)), bits);
  return _mm_cmpeq_epi8(found, bits);
}
// Eight bytes, each twice.
[[gnu::always_inline]] inline __m128i Doubled(__m128i bytes) {
  return _mm_unpacklo_epi8(bytes, bytes);
}
[[gnu::always_inline]] inline __m128i LoadFour(const uint8_t* four) {
  int word;
  std::memcpy(&word, four, sizeof(word));
  return _mm_cvtsi32_si128(word);
}

// Bytes that hold a scale + 127 and, in bit 0, whether levels are shifted: quant/formats/iq4_ks.h.
[[gnu::always_inline]] inline __m128i ScaleBytesOf(const quant::IQ4_KS::Block& block) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block.scales));
}
[[gnu::always_inline]] inline __m128i ScaleBytesOf(const quant::IQ5_KS::Block& block) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block.scales));
}
[[gnu::always_inline]] inline __m128i ScaleBytesOf(const quant::IQ4_KSS::Block& block) {
  const auto* words = reinterpret_cast<const __m256i*>(block.words);
  // Bit i: bit 0 of word 32k + i.
  const auto lowest = [&](int k) __attribute__((always_inline)) {
    const __m256i first = _mm256_slli_epi16(_mm256_loadu_si256(words + 2 * k), 15);
    const __m256i second = _mm256_slli_epi16(_mm256_loadu_si256(words + 2 * k + 1), 15);
    const __m256i signs = _mm256_permute4x64_epi64(_mm256_packs_epi16(first, second), 0xd8);
    return static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(signs)));
  };
  return _mm_cvtsi64_si128(static_cast<int64_t>(lowest(1) << 32 | lowest(0)));
}
template <class Block>
concept HasScaleBytes = requires(const Block& block) { ScaleBytesOf(block); };

template <HasScaleBytes Block>
[[gnu::always_inline]] inline __m128i SixteenScales(const Block& block) {
  const __m128i scales = _mm_and_si128(Doubled(ScaleBytesOf(block)), _mm_set1_epi8(-2));
  return _mm_sub_epi8(scales, _mm_set1_epi8(127));
}
[[gnu::always_inline]] inline __m128i SixteenScales(const quant::IQ2_KS::Block& block) {
  const __m128i bytes = LoadFour(block.scales);
  const __m128i low =
      _mm_and_si128(_mm_unpacklo_epi8(bytes, _mm_srli_epi16(bytes, 4)), _mm_set1_epi8(15));
  const __m128i high = _mm_and_si128(DoubledBits(block.bits.value() >> 8), _mm_set1_epi8(16));
  return _mm_sub_epi8(_mm_or_si128(Doubled(low), high), _mm_set1_epi8(16));
}
[[gnu::always_inline]] inline __m128i SixteenScales(const quant::IQ3_KS::Block& block) {
  const __m128i bytes = LoadFour(block.scales);
  const __m128i low =
      _mm_and_si128(_mm_unpacklo_epi32(bytes, _mm_srli_epi16(bytes, 4)), _mm_set1_epi8(15));
  const __m128i high = _mm_and_si128(DoubledBits(block.bits.value()), _mm_set1_epi8(16));
  return _mm_sub_epi8(_mm_or_si128(Doubled(low), high), _mm_set1_epi8(16));
}
// The scales of quant/formats/iq2_kl.h.
[[gnu::always_inline]] inline __m128i SixteenScales(const quant::IQ2_KL::Block& block) {
  const __m128i bytes = LoadFour(block.scales_low);
  const __m128i low =
      _mm_and_si128(_mm_unpacklo_epi32(bytes, _mm_srli_epi16(bytes, 4)), _mm_set1_epi8(15));
  // Bits 2k and 2k + 1 of lane k to the top and down again.
  const __m128i powers =
      _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1);
  const __m128i word = _mm_set1_epi16(static_cast<short>(block.scales_high.value()));
  const __m128i pairs = _mm_srli_epi16(_mm_mullo_epi16(word, powers), 14);
  const __m128i high = _mm_packus_epi16(_mm_slli_epi16(pairs, 4), _mm_setzero_si128());
  return _mm_sub_epi8(Doubled(_mm_or_si128(low, high)), _mm_set1_epi8(32));
}

// Bit g: whether the levels of group g of sixteen are shifted.
template <class Block>
  requires requires(const Block& block) { block.shifted; }
[[gnu::always_inline]] inline int ShiftedGroups(const Block& block) {
  return static_cast<int>(block.shifted.value());
}
template <HasScaleBytes Block>
[[gnu::always_inline]] inline int ShiftedGroups(const Block& block) {
  return _mm_movemask_epi8(_mm_slli_epi16(Doubled(ScaleBytesOf(block)), 7));
}
[[gnu::always_inline]] inline int ShiftedGroups(const quant::IQ2_KS::Block& block) {
  return _mm_movemask_epi8(DoubledBits(block.bits.value()));
}
[[gnu::always_inline]] inline int ShiftedGroups(const quant::IQ3_KS::Block& block) {
  return _mm_movemask_epi8(DoubledBits(block.bits.value() >> 8));
}

[[gnu::always_inline]] inline __m128i SixteenScales(const quant::IQ6_K::Block& block) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.scales));
}

// Eight fields of four bits, the low ones of four bytes before the high ones, each twice.
[[gnu::always_inline]] inline __m128i DoubledNibbles(const uint8_t* four) {
  const __m128i bytes = LoadFour(four);
  const __m128i both = _mm_unpacklo_epi32(bytes, _mm_srli_epi16(bytes, 4));
  return Doubled(_mm_and_si128(both, _mm_set1_epi8(15)));
}
// The levels of kIq4Levels.
[[gnu::always_inline]] inline __m128i LevelsOf(__m128i codes) {
  const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(quant::kIq4Levels));
  return _mm_shuffle_epi8(levels, codes);
}

// The scales of quant/formats/iq1_kt.h to quant/formats/iq4_kt.h.
[[gnu::always_inline]] inline __m128i SixteenScales(const quant::IQ1_KT::Block& block) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block.scales));
  return LevelsOf(_mm_and_si128(Doubled(bytes), _mm_set1_epi8(15)));
}
[[gnu::always_inline]] inline __m128i SixteenScales(const quant::IQ2_KT::Block& block) {
  return LevelsOf(DoubledNibbles(block.scales));
}
[[gnu::always_inline]] inline __m128i SixteenScales(const quant::IQ3_KT::Block& block) {
  return DoubledNibbles(block.scales);
}
[[gnu::always_inline]] inline __m128i SixteenScales(const quant::IQ4_KT::Block& block) {
  const auto* words = reinterpret_cast<const __m128i*>(block.words);
  const __m128i low = _mm_setr_epi8(0, 0, 4, 4, 8, 8, 12, 12, 0, 0, 4, 4, 8, 8, 12, 12);
  const __m128i bytes = _mm_unpacklo_epi64(_mm_shuffle_epi8(_mm_loadu_si128(words), low),
                                           _mm_shuffle_epi8(_mm_loadu_si128(words + 1), low));
  const __m128i scales = _mm_and_si128(_mm_srli_epi16(bytes, 1), _mm_set1_epi8(127));
  return _mm_sub_epi8(scales, _mm_set1_epi8(64));
}
