// Q6_K for AVX-512: quant/formats/q6_k.h. Included inside the target region of matmul.cpp.

struct UnpackQ6_K {
  using Rows = RowsOfQ6_K;
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = sizeof(quant::Q6_K::Block);
  static constexpr int kScaleValues = 16;

  // 64 consecutive values: the low four bits of `low` and the bits of `high` that `rotate` brings
  // to bits 4 and 5 (first 32 values, last 32 values).
  [[gnu::always_inline]] static __m512i Combine(__m512i low, __m512i high, int rotate_first,
                                                int rotate_last) {
    const __m512i rotate = Join(_mm256_set1_epi32(rotate_first), _mm256_set1_epi32(rotate_last));
    return OrMasked(_mm512_and_si512(low, _mm512_set1_epi8(0x0f)), _mm512_rolv_epi32(high, rotate),
                    0x30);
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q6_K::Block*>(bytes);
    const __m512i low0 = _mm512_loadu_si512(block.low);
    const __m512i low1 = _mm512_loadu_si512(block.low + 64);
    const __m512i high0 = _mm512_broadcast_i64x4(LoadBytes32(block.high));
    const __m512i high1 = _mm512_broadcast_i64x4(LoadBytes32(block.high + 32));
    WeightBlock out;
    TransposeCodes(Combine(low0, high0, 4, 2), Combine(_mm512_srli_epi16(low0, 4), high0, 0, 30),
                   Combine(low1, high1, 4, 2), Combine(_mm512_srli_epi16(low1, 4), high1, 0, 30),
                   out);
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i scales = _mm_shuffle_epi8(LoadBytes16(block.scales), order);
    out.scales =
        _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales)), BroadcastHalf(block.d));
    return out;
  }
};
