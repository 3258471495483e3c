// The vector operations that cpu/generic/pack_rows.inl uses, for 16 rows in AVX-512. Included
// inside the target region of matmul.cpp, after unpack_pieces.inl, which has OrMasked, Negate and
// AddFourBits.

using RowInts = __m512i;
using RowFloats = __m512;

[[gnu::always_inline]] inline __m512i ShiftDown(__m512i v, int bits) {
  return _mm512_srlv_epi32(v, _mm512_set1_epi32(bits));
}
[[gnu::always_inline]] inline __m512i ShiftUp(__m512i v, int bits) {
  return _mm512_sllv_epi32(v, _mm512_set1_epi32(bits));
}
[[gnu::always_inline]] inline __m512i MoveUp(__m512i v, int bits) {
  return _mm512_rolv_epi32(v, _mm512_set1_epi32(bits & 31));
}
[[gnu::always_inline]] inline __m512i SignExtend(__m512i v, int bits) {
  return _mm512_srav_epi32(v, _mm512_set1_epi32(bits));
}
[[gnu::always_inline]] inline __m512i And(__m512i v, int mask) {
  return _mm512_and_si512(v, _mm512_set1_epi32(mask));
}
[[gnu::always_inline]] inline __m512i AndBytes(__m512i bytes, int mask) {
  return _mm512_and_si512(bytes, _mm512_set1_epi8(static_cast<char>(mask)));
}
[[gnu::always_inline]] inline __m512i Less(__m512i v, int number) {
  return _mm512_sub_epi32(v, _mm512_set1_epi32(number));
}
[[gnu::always_inline]] inline __m512 Times(__m512i numbers, __m512 factors) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(numbers), factors);
}
[[gnu::always_inline]] inline __m512 LowerHalves(__m512i words) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}
[[gnu::always_inline]] inline __m512i LookUpRows(const uint8_t* table, __m512i indices) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(LoadBytes16(table)), indices);
}

// The bits of the normal number, which are less than those of the subnormal one exactly where the
// exponent is 0 or 1.
[[gnu::always_inline]] inline __m512 ScalesOfExponents(__m512i exponents) {
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(exponents, one), 23);
  const __m512i subnormal = _mm512_slli_epi32(_mm512_add_epi32(exponents, one), 21);
  return _mm512_castsi512_ps(_mm512_max_epi32(normal, subnormal));
}

constexpr int kSignedBias = 128;
[[gnu::always_inline]] inline __m512i StoreSigned(__m512i codes) {
  return _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
}

// Lane r of out[k]: bytes 4k to 4k + 3 from byte `at` of row r on.
[[gnu::always_inline]] inline void LoadFours(RowBlocks rows, int64_t at, __m512i (&out)[4]) {
  __m512i quarters[4];  // quarter q of quarters[j] is of row 4q + j
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const auto load = [&](int q) __attribute__((always_inline)) {
      return LoadBytes16(rows[4 * q + j] + at);
    };
    __m512i v = _mm512_castsi128_si512(load(0));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load(1));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load(2));
    quarters[j] = _mm512_mask_broadcast_i32x4(v, 0xf000, load(3));
  }
  const __m512i low01 = _mm512_unpacklo_epi32(quarters[0], quarters[1]);
  const __m512i high01 = _mm512_unpackhi_epi32(quarters[0], quarters[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(quarters[2], quarters[3]);
  const __m512i high23 = _mm512_unpackhi_epi32(quarters[2], quarters[3]);
  out[0] = _mm512_unpacklo_epi64(low01, low23);
  out[1] = _mm512_unpackhi_epi64(low01, low23);
  out[2] = _mm512_unpacklo_epi64(high01, high23);
  out[3] = _mm512_unpackhi_epi64(high01, high23);
}

// Four bytes from byte kBytes of `fours` on, 1 to 3, the last of them from `next`, lane by lane.
template <int kBytes>
[[gnu::always_inline]] inline __m512i FoursFrom(__m512i fours, __m512i next) {
  constexpr uint64_t kUpper = kBytes == 1   ? 0x8888888888888888
                              : kBytes == 2 ? 0xcccccccccccccccc
                                            : 0xeeeeeeeeeeeeeeee;
  return _mm512_mask_blend_epi8(kUpper, _mm512_ror_epi32(fours, 8 * kBytes),
                                _mm512_ror_epi32(next, 8 * kBytes));
}

// Lane r: bytes `at` to `at` + 3 of row r.
[[gnu::always_inline]] inline __m512i LoadWords(RowBlocks rows, int64_t at) {
  __m512i quarters[4];  // as in LoadFours, in all lanes of a quarter
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const auto load = [&](int q) __attribute__((always_inline)) {
      int word;
      std::memcpy(&word, rows[4 * q + j] + at, sizeof(word));
      return _mm_cvtsi32_si128(word);
    };
    __m512i v = _mm512_castsi128_si512(_mm_broadcastd_epi32(load(0)));
    v = _mm512_mask_broadcastd_epi32(v, 0x00f0, load(1));
    v = _mm512_mask_broadcastd_epi32(v, 0x0f00, load(2));
    quarters[j] = _mm512_mask_broadcastd_epi32(v, 0xf000, load(3));
  }
  const __m512i first = _mm512_mask_blend_epi32(0xaaaa, quarters[0], quarters[1]);
  const __m512i second = _mm512_mask_blend_epi32(0xaaaa, quarters[2], quarters[3]);
  return _mm512_mask_blend_epi32(0xcccc, first, second);
}
