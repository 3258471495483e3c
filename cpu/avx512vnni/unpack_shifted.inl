// ik_llama.cpp's formats of shifted levels for AVX-512: quant/search/shifted_fit.h,
// quant/formats/iq2_k.h to quant/formats/iq6_k.h, quant/formats/iq2_ks.h to quant/formats/iq5_ks.h.
// Included inside the target region of matmul.cpp, after plane_pieces.inl,
// cpu/avx2/packed_scales.inl and the folder's look_up.inl. One unpacker serves them all: a format
// has planes of bits, levels and scales.

// The codes of a block in LaneOrder::kGroups, in the lower bits of each byte.
template <class Format>
struct ShiftedCodes {
  static constexpr int kLowBits = Format::kLevels.kCount == 8 ? 2 : 4;
  PlanePieces<typename Format::Low> low;
  PlanePieces<typename Format::High> high;

  [[gnu::always_inline]] explicit ShiftedCodes(const typename Format::Block& block)
      : low(block.low), high(block.high) {}
  [[gnu::always_inline]] __m512i Get(int s) const {
    return SelectBits(_mm512_set1_epi8((1 << kLowBits) - 1), low.template Get<0>(s),
                      high.template Get<kLowBits>(s));
  }
};
template <class Format>
  requires(!requires { typename Format::High; })
struct ShiftedCodes<Format> {
  PlanePieces<typename Format::Low> low;

  [[gnu::always_inline]] explicit ShiftedCodes(const typename Format::Block& block)
      : low(block.low) {}
  [[gnu::always_inline]] __m512i Get(int s) const { return low.template Get<0>(s); }
};
template <>
struct ShiftedCodes<quant::IQ4_KSS> {
  PlanePieces<quant::IQ4_KS::Low> low;

  [[gnu::always_inline]] static __m512i Nibbles(__m512i words) {
    const __m512i even = _mm512_and_si512(words, _mm512_set1_epi16(-2));
    return _mm512_xor_si512(even, _mm512_srli_epi16(even, 1));
  }
  [[gnu::always_inline]] explicit ShiftedCodes(const quant::IQ4_KSS::Block& block)
      : low(Nibbles(_mm512_loadu_si512(block.words)),
            Nibbles(_mm512_loadu_si512(block.words + 32))) {}
  [[gnu::always_inline]] __m512i Get(int s) const { return low.Get<0>(s); }
};

// In lane order: the scales of the groups, without a block's unit, and which groups are shifted.
struct LaneScales {
  __m512i scales;
  __mmask16 shifted;
};

// From sixteen bytes, one a group.
[[gnu::always_inline]] inline __m128i BytesInLaneOrder(__m128i groups) {
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm_shuffle_epi8(groups, order);
}
// The lanes whose group, or pair of groups, has its bit in `bits`.
[[gnu::always_inline]] inline __mmask16 LanesOfGroups(uint32_t bits) {
  const __m512i bit = _mm512_sllv_epi32(_mm512_set1_epi32(1), GroupOfLane());
  return _mm512_test_epi32_mask(_mm512_set1_epi32(static_cast<int>(bits)), bit);
}
[[gnu::always_inline]] inline __mmask16 LanesOfPairs(uint32_t bits) {
  const __m512i bit = _mm512_sllv_epi32(_mm512_set1_epi32(1), PairOfLane());
  return _mm512_test_epi32_mask(_mm512_set1_epi32(static_cast<int>(bits)), bit);
}

// Bytes that hold a scale + 127 and, in bit 0, whether levels are shifted, of the eight pairs.
[[gnu::always_inline]] inline LaneScales ScalesOfBytes(__m128i bytes) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7);
  const __m512i lanes = _mm512_cvtepu8_epi32(_mm_shuffle_epi8(bytes, order));
  const __m512i scales = _mm512_and_si512(lanes, _mm512_set1_epi32(254));
  return {_mm512_sub_epi32(scales, _mm512_set1_epi32(127)),
          _mm512_test_epi32_mask(lanes, _mm512_set1_epi32(1))};
}

template <class Block>
[[gnu::always_inline]] inline __m512i IntegerScales(const Block& block) {
  return _mm512_cvtepi8_epi32(BytesInLaneOrder(SixteenScales(block)));
}
template <class Block>
[[gnu::always_inline]] inline LaneScales ScalesOfLanes(const Block& block) {
  return {IntegerScales(block), LanesOfGroups(block.shifted.value())};
}
[[gnu::always_inline]] inline LaneScales ScalesOfLanes(const quant::IQ2_KS::Block& block) {
  return {IntegerScales(block), LanesOfPairs(block.bits.value())};
}
[[gnu::always_inline]] inline LaneScales ScalesOfLanes(const quant::IQ3_KS::Block& block) {
  return {IntegerScales(block), LanesOfPairs(block.bits.value() >> 8)};
}
template <HasScaleBytes Block>
[[gnu::always_inline]] inline LaneScales ScalesOfLanes(const Block& block) {
  return ScalesOfBytes(ScaleBytesOf(block));
}
[[gnu::always_inline]] inline LaneScales ScalesOfLanes(const quant::IQ4_KSS::Block& block) {
  const __m512i one = _mm512_set1_epi16(1);
  const uint64_t low = _mm512_test_epi16_mask(_mm512_loadu_si512(block.words), one);
  const uint64_t high = _mm512_test_epi16_mask(_mm512_loadu_si512(block.words + 32), one);
  return ScalesOfBytes(_mm_cvtsi64_si128(static_cast<int64_t>(high << 32 | low)));
}

// Scales in lane order, times the block's unit, where it has one.
template <class Block>
[[gnu::always_inline]] inline __m512 FloatScales(const Block& block, __m512i scales) {
  const __m512 lanes = _mm512_cvtepi32_ps(scales);
  if constexpr (requires { block.d; }) {
    return _mm512_mul_ps(lanes, BroadcastHalf(block.d));
  } else {
    return lanes;
  }
}

// Levels + 128, as often as they fit.
template <class Format>
struct LevelBytes {
  alignas(64) uint8_t bytes[64] = {};
  constexpr LevelBytes() {
    for (int i = 0; i < 64; ++i) {
      bytes[i] = static_cast<uint8_t>(Format::kLevels.levels[i % Format::kLevels.kCount] + 128);
    }
  }
};
template <class Format>
constexpr LevelBytes<Format> kLevelBytes;

template <class Format>
struct UnpackShifted {
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = sizeof(typename Format::Block);
  static constexpr int kScaleValues = 16;
  static constexpr bool kHasRowFactor = requires { typename Format::Head; };

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const typename Format::Block*>(bytes);
    const LaneScales scales = ScalesOfLanes(block);
    const __m512i more =
        _mm512_maskz_set1_epi32(scales.shifted, 0x01010101 * Format::kLevels.shift);
    const ShiftedCodes<Format> codes(block);
    const auto level = [&](int s) __attribute__((always_inline)) {
      return _mm512_add_epi8(
          LookUp64<Format::kLevels.kCount>(kLevelBytes<Format>.bytes, codes.Get(s)), more);
    };
    WeightBlock out;
    out.codes0 = level(0);
    out.codes1 = level(1);
    out.codes2 = level(2);
    out.codes3 = level(3);
    out.scales = FloatScales(block, scales.scales);
    return out;
  }
};

// Pairs of levels + 128, the first in the lower byte.
struct PairWords {
  alignas(64) uint16_t words[32] = {};
  constexpr PairWords() {
    for (int i = 0; i < 32; ++i) {
      words[i] = static_cast<uint16_t>((quant::kLevelPairs[i][0] + 128) |
                                       (quant::kLevelPairs[i][1] + 128) << 8);
    }
  }
};
constexpr PairWords kPairWords;

// Pairs of levels, quant/formats/iq2_kl.h.
struct UnpackIQ2_KL {
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_KL::Block);
  static constexpr int kScaleValues = 16;
  static constexpr bool kHasRowFactor = true;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_KL::Block*>(bytes);
    const PairNumbers pairs(block);
    const auto levels = [&](int s) __attribute__((always_inline)) {
      return _mm512_permutexvar_epi16(pairs.Get(s), _mm512_load_si512(kPairWords.words));
    };
    WeightBlock out;
    out.codes0 = levels(0);
    out.codes1 = levels(1);
    out.codes2 = levels(2);
    out.codes3 = levels(3);
    out.scales = FloatScales(block, IntegerScales(block));
    return out;
  }
};
