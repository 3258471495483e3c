// IQ4_NL and IQ4_XS for AVX-512: quant/iq4_nl.h, quant/iq4_xs.h. Included inside the target region
// of matmul.cpp, after unpack_q4_0.inl.

// 4-bit codes to their levels + 128.
[[gnu::always_inline]] inline void LookUpLevels(WeightBlock& out) {
  const __m128i levels =
      _mm_xor_si128(LoadBytes16(quant::kIq4Levels), _mm_set1_epi8(static_cast<char>(0x80)));
  const __m512i table = _mm512_broadcast_i32x4(levels);
  out.codes0 = _mm512_shuffle_epi8(table, out.codes0);
  out.codes1 = _mm512_shuffle_epi8(table, out.codes1);
  out.codes2 = _mm512_shuffle_epi8(table, out.codes2);
  out.codes3 = _mm512_shuffle_epi8(table, out.codes3);
}

struct UnpackIQ4_NL {
  using Codes = CodeTraits<128, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::IQ4_NL::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    static_assert(sizeof(quant::IQ4_NL::Block) == 18);
    WeightBlock out;
    UnpackEighteenByteBlocks(bytes, out);
    LookUpLevels(out);
    return out;
  }
};

struct UnpackIQ4_XS {
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ4_XS::Block);
  static constexpr int kScaleValues = 32;

  // Times d; lane 4q + v takes the scale of pair 2v + q / 2.
  [[gnu::always_inline]] static __m512 Scales(const quant::IQ4_XS::Block& block) {
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7);
    const __m512i lanes = _mm512_cvtepi8_epi32(_mm_shuffle_epi8(PackedScales(block), order));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(lanes), BroadcastHalf(block.d));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ4_XS::Block*>(bytes);
    WeightBlock out;
    UnpackNibbleBlocks<16>(block.codes, out);
    LookUpLevels(out);
    out.scales = Scales(block);
    return out;
  }
};
