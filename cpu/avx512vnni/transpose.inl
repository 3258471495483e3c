// Transposes sixteen vectors of AVX-512 with sixteen lanes each. Included inside a namespace and
// target region.

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
