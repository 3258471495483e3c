// Planes of bits (BitPlane of quant/block.h) in LaneOrder::kGroups, without a transposition: a lane
// picks the four bytes that its values lie in and shifts them. Included inside the target region of
// matmul.cpp, after piece_order.inl.

// The pieces of a plane of 256 fields: 32 * kWidth bytes.
template <class Plane>
struct PlanePieces;
template <int kWidth, int kRun>
struct PlanePieces<quant::BitPlane<kWidth, kRun>> {
  __m512i low, high;

  [[gnu::always_inline]] explicit PlanePieces(const uint8_t* bytes) {
    if constexpr (kWidth == 1) {
      low = _mm512_castsi256_si512(LoadBytes32(bytes));
    } else {
      low = _mm512_loadu_si512(bytes);
    }
    if constexpr (kWidth == 4) high = _mm512_loadu_si512(bytes + 64);
  }
  [[gnu::always_inline]] PlanePieces(__m512i low_half, __m512i high_half)
      : low(low_half), high(high_half) {}

  // The bytes of vector s, whose fields begin at bit kBit of each; the other bits are any.
  template <int kBit>
  [[gnu::always_inline]] __m512i Get(int s) const {
    const auto& order = kPieceOrder<kWidth, kRun, kBit>;
    const __m512i from = _mm512_load_si512(order.first[s]);
    __m512i pieces;
    if constexpr (kWidth == 4) {
      pieces = _mm512_permutex2var_epi32(low, from, high);
    } else {
      pieces = _mm512_permutexvar_epi32(from, low);
    }
    const __m512i shift = _mm512_load_si512(order.shift);
    return kBit == 0 ? _mm512_srlv_epi32(pieces, shift) : _mm512_rorv_epi32(pieces, shift);
  }
};

// Where the number of the pair of 16-bit word w of vector s lies, in planes whose bytes have become
// words: its word, and the bit at which its field begins.
template <class Plane>
struct PairOrder {
  alignas(64) uint16_t first[4][32] = {};
  alignas(64) uint16_t shift[32] = {};
  constexpr PairOrder() {
    for (int w = 0; w < 32; ++w) {
      const int lane = w / 2;
      const int pair = FirstValue(lane, 0) / 2 + w % 2;
      for (int s = 0; s < 4; ++s) first[s][w] = static_cast<uint16_t>(Plane::Byte(pair + 2 * s));
      shift[w] = static_cast<uint16_t>(Plane::Shift(pair));
    }
  }
};
constexpr PairOrder<quant::IQ2_KL::Low> kPairsLow;
constexpr PairOrder<quant::IQ2_KL::High> kPairsHigh;

// The numbers of the pairs of quant/formats/iq2_kl.h in LaneOrder::kGroups, two in each lane of a
// vector: in the lower five bits of 16-bit words.
struct PairNumbers {
  __m512i low0, low1, high;

  [[gnu::always_inline]] explicit PairNumbers(const quant::IQ2_KL::Block& block)
      : low0(_mm512_cvtepu8_epi16(LoadBytes32(block.low))),
        low1(_mm512_cvtepu8_epi16(LoadBytes32(block.low + 32))),
        high(_mm512_castsi256_si512(
            _mm256_slli_epi16(_mm256_cvtepu8_epi16(LoadBytes16(block.high)), 4))) {}

  [[gnu::always_inline]] __m512i Get(int s) const {
    const __m512i from_low = _mm512_load_si512(kPairsLow.first[s]);
    const __m512i from_high = _mm512_load_si512(kPairsHigh.first[s]);
    const __m512i lower = _mm512_srlv_epi16(_mm512_permutex2var_epi16(low0, from_low, low1),
                                            _mm512_load_si512(kPairsLow.shift));
    const __m512i upper = _mm512_srlv_epi16(_mm512_permutexvar_epi16(from_high, high),
                                            _mm512_load_si512(kPairsHigh.shift));
    return SelectBits(_mm512_set1_epi16(15), lower, upper);
  }
};
