// Transposes eight vectors of AVX2 with eight lanes each. Included inside a namespace and target
// region, after F32.

// Lane r of vector l becomes lane l of vector r.
inline void TransposeFloats(F32* v) {
  __m256 quads[8];  // lane 4L + r of quads[4i + j] = column 4L + j of row 4i + r
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    const __m256 low01 = _mm256_unpacklo_ps(v[i], v[i + 1]);
    const __m256 high01 = _mm256_unpackhi_ps(v[i], v[i + 1]);
    const __m256 low23 = _mm256_unpacklo_ps(v[i + 2], v[i + 3]);
    const __m256 high23 = _mm256_unpackhi_ps(v[i + 2], v[i + 3]);
    quads[i] = _mm256_shuffle_ps(low01, low23, 0x44);
    quads[i + 1] = _mm256_shuffle_ps(low01, low23, 0xee);
    quads[i + 2] = _mm256_shuffle_ps(high01, high23, 0x44);
    quads[i + 3] = _mm256_shuffle_ps(high01, high23, 0xee);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    v[j] = _mm256_permute2f128_ps(quads[j], quads[4 + j], 0x20);
    v[4 + j] = _mm256_permute2f128_ps(quads[j], quads[4 + j], 0x31);
  }
}
