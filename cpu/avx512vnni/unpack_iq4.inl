// IQ4_NL and IQ4_XS for AVX-512: quant/iq4_nl.h, quant/iq4_xs.h. Included inside the target region
// of matmul.cpp, after unpack_q4_0.inl, cpu/avx2/packed_scales.inl and the folder's
// plane_pieces.inl and look_up.inl.

// Levels + 128, four times.
struct Iq4Bytes {
  alignas(64) uint8_t bytes[64] = {};
  constexpr Iq4Bytes() {
    for (int i = 0; i < 64; ++i) bytes[i] = static_cast<uint8_t>(quant::kIq4Levels[i % 16] + 128);
  }
};
constexpr Iq4Bytes kIq4Bytes;

struct RowsOfIQ4_NL : SmallBlockRows<RowsOfIQ4_NL>, HalfScales {
  using Format = quant::IQ4_NL;
  struct Codes : RowCodes {
    static constexpr int kBits = 8;
    static constexpr int kBias = 128;
    static constexpr bool kShortScales = true;
  };
  static constexpr int kLow = offsetof(Format::Block, codes);
  // The level + 128 of each.
  [[gnu::always_inline]] static __m512i CodesOf(__m512i bits) {
    return _mm512_shuffle_epi8(_mm512_load_si512(kIq4Bytes.bytes), bits);
  }
};

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

struct RowsOfIQ4_XS : PackedRows<RowsOfIQ4_XS> {
  using Format = quant::IQ4_XS;
  struct Codes : RowCodes {
    static constexpr int kBits = 8;
    static constexpr int kBias = 128;
  };
  using Low = Format::Codes;
  static constexpr int64_t kLow = offsetof(Format::Block, codes);
  struct Scales {
    __m512 d;
    __m512i high, low;  // two and four bits of each number

    explicit Scales(RowBlocks rows) {
      static_assert(offsetof(Format::Block, d) == 0 && offsetof(Format::Block, scales_high) == 2 &&
                    offsetof(Format::Block, scales_low) == 4);
      const __m512i first = LoadWords(rows, 0);
      d = LowerHalves(first);
      high = _mm512_srli_epi32(first, 16);
      low = LoadWords(rows, 4);
    }
    RowScales Of(int pair, int /*half*/) const {
      const __m512i four = _mm512_and_si512(_mm512_srlv_epi32(low, _mm512_set1_epi32(4 * pair)),
                                            _mm512_set1_epi32(15));
      const __m512i two = _mm512_and_si512(_mm512_srlv_epi32(high, _mm512_set1_epi32(2 * pair)),
                                           _mm512_set1_epi32(3));
      const __m512i number = _mm512_or_si512(four, _mm512_slli_epi32(two, 4));
      return {Times(_mm512_sub_epi32(number, _mm512_set1_epi32(32)), d)};
    }
  };
  [[gnu::always_inline]] static __m512i CodesOf(__m512i bits) {
    return RowsOfIQ4_NL::CodesOf(bits);
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
