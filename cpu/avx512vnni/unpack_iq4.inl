// IQ4_NL and IQ4_XS for AVX-512: quant/formats/iq4_nl.h, quant/formats/iq4_xs.h. Included inside
// the target region of matmul.cpp, after unpack_q4_0.inl, cpu/avx2/packed_scales.inl and the
// folder's plane_pieces.inl and look_up.inl.

// Levels + 128, four times.
struct Iq4Bytes {
  alignas(64) uint8_t bytes[64] = {};
  constexpr Iq4Bytes() {
    for (int i = 0; i < 64; ++i) bytes[i] = static_cast<uint8_t>(quant::kIq4Levels[i % 16] + 128);
  }
};
constexpr Iq4Bytes kIq4Bytes;

struct UnpackIQ4_NL {
  using Rows = RowsOfIQ4_NL;
  using Codes = CodeTraits<128, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::IQ4_NL::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    static_assert(sizeof(quant::IQ4_NL::Block) == 18);
    WeightBlock out;
    UnpackEighteenByteBlocks(bytes, out);
    const __m512i table = _mm512_load_si512(kIq4Bytes.bytes);
    out.codes0 = _mm512_shuffle_epi8(table, out.codes0);
    out.codes1 = _mm512_shuffle_epi8(table, out.codes1);
    out.codes2 = _mm512_shuffle_epi8(table, out.codes2);
    out.codes3 = _mm512_shuffle_epi8(table, out.codes3);
    return out;
  }
};

struct UnpackIQ4_XS {
  using Rows = RowsOfIQ4_XS;
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
    const PlanePieces<quant::IQ4_XS::Codes> pieces(block.codes);
    WeightBlock out;
    out.codes0 = LookUp64<16>(kIq4Bytes.bytes, pieces.Get<0>(0));
    out.codes1 = LookUp64<16>(kIq4Bytes.bytes, pieces.Get<0>(1));
    out.codes2 = LookUp64<16>(kIq4Bytes.bytes, pieces.Get<0>(2));
    out.codes3 = LookUp64<16>(kIq4Bytes.bytes, pieces.Get<0>(3));
    out.scales = Scales(block);
    return out;
  }
};
