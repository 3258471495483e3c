// Tables of up to 64 bytes in AVX-512 without VBMI. Included inside the target region of
// matmul.cpp.

// Codes that are looked up in the wrong sixteen are replaced.
template <int kCount>
[[gnu::always_inline]] inline __m512i LookUpInSixteens(const uint8_t* table, __m512i codes) {
  if constexpr (kCount <= 16) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(LoadBytes16(table)), codes);
  } else {
    constexpr int kHalf = kCount / 2;
    const __mmask64 upper = _mm512_test_epi8_mask(codes, _mm512_set1_epi8(kHalf));
    return _mm512_mask_blend_epi8(upper, LookUpInSixteens<kHalf>(table, codes),
                                  LookUpInSixteens<kHalf>(table + kHalf, codes));
  }
}

// The entries, of a table of 64 bytes that repeats kCount of them, for the lower bits of each byte;
// the bits above do not count.
template <int kCount>
[[gnu::always_inline]] inline __m512i LookUp64(const uint8_t* table, __m512i codes) {
  constexpr char kMask = kCount <= 16 ? 15 : kCount - 1;
  return LookUpInSixteens<kCount>(table, _mm512_and_si512(codes, _mm512_set1_epi8(kMask)));
}
