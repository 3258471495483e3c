// Q2_K and Q3_K for AVX-512: quant/q2_k.h, quant/q3_k.h. Included inside the target region of
// matmul.cpp, after the folder's plane_pieces.inl and cpu/avx2/packed_scales.inl.

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

struct RowsOfQ2_K : PackedRows<RowsOfQ2_K> {
  using Format = quant::Q2_K;
  struct Codes : RowCodes {
    static constexpr bool kHasOffsets = true;
    static constexpr int kScaleValues = 16;
  };
  using Low = Format::Codes;
  static constexpr int64_t kLow = offsetof(Format::Block, codes);
  struct Scales {
    __m512 d, dmin;
    RowNumbers numbers, minima;

    explicit Scales(RowBlocks rows) {
      static_assert(offsetof(Format::Block, dmin) == offsetof(Format::Block, d) + 2);
      const __m512i factors = LoadWords(rows, offsetof(Format::Block, d));
      d = LowerHalves(factors);
      dmin = UpperHalves(factors);
      __m512i bytes[4];
      LoadFours(rows, offsetof(Format::Block, scales), bytes);
      for (int i = 0; i < 4; ++i) {
        numbers.fours[i] = AndBytes(bytes[i], 15);
        minima.fours[i] = AndBytes(_mm512_srli_epi32(bytes[i], 4), 15);
      }
    }
    RowScales Of(int pair, int half) const {
      const int group = 2 * pair + half;
      return {Times(numbers.Unsigned(group), d), Times(minima.Unsigned(group), dmin)};
    }
  };
};

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

struct RowsOfQ3_K : PackedRows<RowsOfQ3_K> {
  using Format = quant::Q3_K;
  struct Codes : RowCodes {
    static constexpr int kBias = 4;
    static constexpr bool kShortScales = true;
    static constexpr int kScaleValues = 16;
  };
  using High = Format::High;
  using Low = Format::Low;
  static constexpr int64_t kHigh = offsetof(Format::Block, high);
  static constexpr int64_t kLow = offsetof(Format::Block, low);
  struct Scales {
    __m512 d;
    RowNumbers numbers;  // and 32

    explicit Scales(RowBlocks rows) {
      constexpr int64_t kLast = sizeof(Format::Block) - 16;  // all scales and d
      static_assert(offsetof(Format::Block, scales_low) == kLast + 2 &&
                    offsetof(Format::Block, scales_high) == kLast + 10 &&
                    offsetof(Format::Block, d) == kLast + 14);
      __m512i words[4];
      LoadFours(rows, kLast, words);
      d = UpperHalves(words[3]);
      const __m512i low[2] = {FoursFrom<2>(words[0], words[1]), FoursFrom<2>(words[1], words[2])};
      const __m512i high = FoursFrom<2>(words[2], words[3]);
      for (int i = 0; i < 4; ++i) {
        const __m512i four = i < 2 ? low[i] : _mm512_srli_epi32(low[i - 2], 4);
        const __m512i two = _mm512_rolv_epi32(high, _mm512_set1_epi32((4 - 2 * i) & 31));
        numbers.fours[i] = OrMasked(AndBytes(four, 15), two, 0x30);
      }
    }
    RowScales Of(int pair, int half) const {
      return {Times(_mm512_sub_epi32(numbers.Unsigned(2 * pair + half), _mm512_set1_epi32(32)), d)};
    }
  };
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
