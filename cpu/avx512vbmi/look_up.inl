// Tables of up to 64 bytes in AVX-512 VBMI. Included inside the target region of matmul.cpp.

// The entries, of a table of 64 bytes that repeats kCount of them, for the lower bits of each byte;
// the bits above do not count.
template <int kCount>
[[gnu::always_inline]] inline __m512i LookUp64(const uint8_t* table, __m512i codes) {
  static_assert(kCount <= 64);
  return _mm512_permutexvar_epi8(codes, _mm512_load_si512(table));
}
