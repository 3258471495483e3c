// Q2_K and Q3_K for AVX-512: quant/q2_k.h, quant/q3_k.h. Included inside the target region of
// matmul.cpp.

// The 2-bit codes of a block: a run of 32 bytes holds 8 groups, group g of it in half g % 2, bits
// 2 * (g / 2). So lane 4q + v takes half q % 2 of run v / 2, shifted by 4 * (v % 2) + 2 * (q / 2).
[[gnu::always_inline]] inline void UnpackTwoBitRuns(const uint8_t* codes, WeightBlock& out) {
  const __m512i first = _mm512_setr_epi32(0, 0, 8, 8, 4, 4, 12, 12, 0, 0, 8, 8, 4, 4, 12, 12);
  const __m512i shift = _mm512_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4, 2, 6, 2, 6, 2, 6, 2, 6);
  const __m512i mask = _mm512_set1_epi8(3);
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i second = _mm512_add_epi32(first, one);
  const __m512i third = _mm512_add_epi32(second, one);
  const __m512i fourth = _mm512_add_epi32(third, one);
  const __m512i all = _mm512_loadu_si512(codes);
  out.codes0 =
      _mm512_and_si512(_mm512_srlv_epi32(_mm512_permutexvar_epi32(first, all), shift), mask);
  out.codes1 =
      _mm512_and_si512(_mm512_srlv_epi32(_mm512_permutexvar_epi32(second, all), shift), mask);
  out.codes2 =
      _mm512_and_si512(_mm512_srlv_epi32(_mm512_permutexvar_epi32(third, all), shift), mask);
  out.codes3 =
      _mm512_and_si512(_mm512_srlv_epi32(_mm512_permutexvar_epi32(fourth, all), shift), mask);
}

// Sixteen signed bytes, one per group, times a factor, in lane order.
[[gnu::always_inline]] inline __m512 ScaleGroups(__m128i bytes, quant::PackedHalf factor) {
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i lanes = _mm512_cvtepi8_epi32(_mm_shuffle_epi8(bytes, order));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(lanes), BroadcastHalf(factor));
}

struct UnpackQ2_K {
  using Codes = CodeTraits<0, true>;
  static constexpr int64_t kBytes = sizeof(quant::Q2_K::Block);
  static constexpr int kScaleValues = 16;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q2_K::Block*>(bytes);
    const __m128i pairs = LoadBytes16(block.scales);
    const __m128i mask = _mm_set1_epi8(15);
    WeightBlock out;
    UnpackTwoBitRuns(block.codes, out);
    out.scales = ScaleGroups(_mm_and_si128(pairs, mask), block.d);
    out.offsets = ScaleGroups(_mm_and_si128(_mm_srli_epi16(pairs, 4), mask), block.dmin);
    return out;
  }
};

// Sets bit 2 of the codes, where byte b, bit k of the 32 bytes of high bits belongs to value 32k +
// b: lane 4q + v takes bit 2v + q / 2 of the bytes of half q % 2.
[[gnu::always_inline]] inline void AddThirdBits(const uint8_t* bytes, WeightBlock& out) {
  const __m512i high = _mm512_castsi256_si512(LoadBytes32(bytes));
  const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4);
  const __m512i bit = _mm512_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7);
  const __m512i rotate = _mm512_sub_epi32(_mm512_set1_epi32(2), bit);
  const auto add = [&](__m512i codes, int step) __attribute__((always_inline)) {
    const __m512i picked =
        _mm512_permutexvar_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(step)), high);
    return OrMasked(codes, _mm512_rolv_epi32(picked, rotate), 0x04);
  };
  out.codes0 = add(out.codes0, 0);
  out.codes1 = add(out.codes1, 1);
  out.codes2 = add(out.codes2, 2);
  out.codes3 = add(out.codes3, 3);
}

struct UnpackQ3_K {
  using Codes = CodeTraits<4, false>;
  static constexpr int64_t kBytes = sizeof(quant::Q3_K::Block);
  static constexpr int kScaleValues = 16;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q3_K::Block*>(bytes);
    WeightBlock out;
    UnpackTwoBitRuns(block.low, out);
    AddThirdBits(block.high, out);
    out.scales = ScaleGroups(PackedScales(block), block.d);
    return out;
  }
};
