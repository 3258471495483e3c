// The code that panels of rows in lanes share, those of AVX-512 VNNI and of AMX. Included inside
// the target region of matmul.cpp, after int8_blocks.inl.

// Lane r of vector l becomes lane l of vector r.
inline void TransposeLanes(__m512i* v) {
  __m512i quads[16];  // lane 4L + r of quads[4i + j] = column 4L + j of row 4i + r
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512i low01 = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    const __m512i high01 = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    const __m512i low23 = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]);
    const __m512i high23 = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    quads[i] = _mm512_unpacklo_epi64(low01, low23);
    quads[i + 1] = _mm512_unpackhi_epi64(low01, low23);
    quads[i + 2] = _mm512_unpacklo_epi64(high01, high23);
    quads[i + 3] = _mm512_unpackhi_epi64(high01, high23);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i even01 = _mm512_shuffle_i32x4(quads[j], quads[4 + j], 0x88);
    const __m512i even23 = _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], 0x88);
    const __m512i odd01 = _mm512_shuffle_i32x4(quads[j], quads[4 + j], 0xdd);
    const __m512i odd23 = _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], 0xdd);
    v[j] = _mm512_shuffle_i32x4(even01, even23, 0x88);
    v[4 + j] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
    v[8 + j] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
    v[12 + j] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
  }
}

inline WeightBlock ZeroBlock() {
  const __m512i zero = _mm512_setzero_si512();
  return {zero, zero, zero, zero, _mm512_setzero_ps(), _mm512_setzero_ps()};
}

// out[0..rows) = (or +=) the lanes of `sums`, at most all; nothing where rows <= 0.
inline void StoreLanes(__m512 sums, int64_t rows, Store store, float* out) {
  const __mmask16 mask = static_cast<__mmask16>((1u << std::clamp<int64_t>(rows, 0, 16)) - 1);
  if (store == Store::kAdd) sums = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), sums);
  _mm512_mask_storeu_ps(out, mask, sums);
}
