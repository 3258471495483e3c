// The vector operations that cpu/generic/pack_rows.inl uses, for eight rows in AVX2. Included
// inside the target region of matmul.cpp, after unpack_pieces.inl, which has Negate, and
// byte_products.inl, which has kSignedBias and StoreSigned.

using RowInts = __m256i;
using RowFloats = __m256;

[[gnu::always_inline]] inline __m256i ShiftDown(__m256i v, int bits) {
  return _mm256_srli_epi32(v, bits);
}
[[gnu::always_inline]] inline __m256i ShiftUp(__m256i v, int bits) {
  return _mm256_slli_epi32(v, bits);
}
[[gnu::always_inline]] inline __m256i MoveUp(__m256i v, int bits) {
  return bits >= 0 ? ShiftUp(v, bits) : ShiftDown(v, -bits);
}
[[gnu::always_inline]] inline __m256i SignExtend(__m256i v, int bits) {
  return _mm256_srai_epi32(v, bits);
}
[[gnu::always_inline]] inline __m256i And(__m256i v, int mask) {
  return _mm256_and_si256(v, _mm256_set1_epi32(mask));
}
[[gnu::always_inline]] inline __m256i AndBytes(__m256i bytes, int mask) {
  return _mm256_and_si256(bytes, _mm256_set1_epi8(static_cast<char>(mask)));
}
[[gnu::always_inline]] inline __m256i OrMasked(__m256i a, __m256i b, int mask) {
  return _mm256_or_si256(a, AndBytes(b, mask));
}
[[gnu::always_inline]] inline __m256i Less(__m256i v, int number) {
  return _mm256_sub_epi32(v, _mm256_set1_epi32(number));
}
[[gnu::always_inline]] inline __m256 Times(__m256i numbers, __m256 factors) {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(numbers), factors);
}
[[gnu::always_inline]] inline __m256 LowerHalves(__m256i words) {
  const __m256i lower = And(words, 0xffff);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(lower, lower), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
[[gnu::always_inline]] inline __m256i LookUpRows(const uint8_t* table, __m256i indices) {
  return _mm256_shuffle_epi8(LoadTwice(table), indices);
}

// The lowest byte of a lane comes to all four of it, each of which takes one of its bits.
[[gnu::always_inline]] inline __m256i AddFourBits(__m256i codes, __m256i words) {
  const __m256i lowest = _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12,  //
                                          0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
  const __m256i bits = _mm256_set1_epi32(0x08040201);
  const __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(words, lowest), bits);
  return OrMasked(codes, _mm256_cmpeq_epi8(own, bits), 0x10);
}

// The bits of the normal number, which are less than those of the subnormal one exactly where the
// exponent is 0 or 1.
[[gnu::always_inline]] inline __m256 ScalesOfExponents(__m256i exponents) {
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponents, one), 23);
  const __m256i subnormal = _mm256_slli_epi32(_mm256_add_epi32(exponents, one), 21);
  return _mm256_castsi256_ps(_mm256_max_epi32(normal, subnormal));
}

[[gnu::always_inline]] inline void LoadFours(RowBlocks rows, int64_t at, __m256i (&out)[4]) {
  __m256i halves[4];  // rows j and 4 + j
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    halves[j] = _mm256_inserti128_si256(_mm256_castsi128_si256(LoadBytes16(rows[j] + at)),
                                        LoadBytes16(rows[4 + j] + at), 1);
  }
  TransposeCodes(halves[0], halves[1], halves[2], halves[3], out);
}

[[gnu::always_inline]] inline __m256i LoadWords(RowBlocks rows, int64_t at) {
  const auto load = [&](int64_t row) __attribute__((always_inline)) {
    int word;
    std::memcpy(&word, rows[row] + at, sizeof(word));
    return word;
  };
  return _mm256_setr_epi32(load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7));
}

template <int kBytes>
[[gnu::always_inline]] inline __m256i FoursFrom(__m256i fours, __m256i next) {
  return _mm256_or_si256(ShiftDown(fours, 8 * kBytes), ShiftUp(next, 32 - 8 * kBytes));
}
