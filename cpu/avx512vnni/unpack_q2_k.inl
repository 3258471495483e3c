// Q2_K and Q3_K for AVX-512: quant/formats/q2_k.h, quant/formats/q3_k.h. Included inside the target
// region of matmul.cpp, after the folder's plane_pieces.inl and cpu/avx2/packed_scales.inl.

// Fields of two bits.
template <class Pieces>
[[gnu::always_inline]] inline void TakeTwoBits(const Pieces& pieces, WeightBlock& out) {
  const __m512i three = _mm512_set1_epi8(3);
  out.codes0 = _mm512_and_si512(pieces.template Get<0>(0), three);
  out.codes1 = _mm512_and_si512(pieces.template Get<0>(1), three);
  out.codes2 = _mm512_and_si512(pieces.template Get<0>(2), three);
  out.codes3 = _mm512_and_si512(pieces.template Get<0>(3), three);
}

// Sixteen signed bytes, one per group, times a factor, in lane order.
[[gnu::always_inline]] inline __m512 ScaleGroups(__m128i bytes, quant::PackedHalf factor) {
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i lanes = _mm512_cvtepi8_epi32(_mm_shuffle_epi8(bytes, order));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(lanes), BroadcastHalf(factor));
}

struct UnpackQ2_K {
  using Rows = RowsOfQ2_K;
  using Codes = CodeTraits<0, true>;
  static constexpr int64_t kBytes = sizeof(quant::Q2_K::Block);
  static constexpr int kScaleValues = 16;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q2_K::Block*>(bytes);
    const __m128i pairs = LoadBytes16(block.scales);
    const __m128i mask = _mm_set1_epi8(15);
    WeightBlock out;
    TakeTwoBits(PlanePieces<quant::Q2_K::Codes>(block.codes), out);
    out.scales = ScaleGroups(_mm_and_si128(pairs, mask), block.d);
    out.offsets = ScaleGroups(_mm_and_si128(_mm_srli_epi16(pairs, 4), mask), block.dmin);
    return out;
  }
};

struct UnpackQ3_K {
  using Rows = RowsOfQ3_K;
  using Codes = CodeTraits<4, false>;
  static constexpr int64_t kBytes = sizeof(quant::Q3_K::Block);
  static constexpr int kScaleValues = 16;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q3_K::Block*>(bytes);
    const PlanePieces<quant::Q3_K::Low> low(block.low);
    const PlanePieces<quant::Q3_K::High> high(block.high);
    const auto code = [&](int s) __attribute__((always_inline)) {
      const __m512i both =
          SelectBits(_mm512_set1_epi8(3), low.template Get<0>(s), high.template Get<2>(s));
      return _mm512_and_si512(both, _mm512_set1_epi8(7));
    };
    WeightBlock out;
    out.codes0 = code(0);
    out.codes1 = code(1);
    out.codes2 = code(2);
    out.codes3 = code(3);
    out.scales = ScaleGroups(PackedScales(block), block.d);
    return out;
  }
};
