// The code that panels of rows in lanes share, those of AVX-512 VNNI and of AMX. Included inside
// the target region of matmul.cpp, after int8_blocks.inl.

#include "cpu/avx512vnni/transpose.inl"

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
