// Planes of bits (BitPlane of quant/block.h) in LaneOrder::kGroups in AVX-512 VBMI, without a
// transposition. VPMULTISHIFTQB takes each byte from any bit of its 64-bit word on, so where the
// bytes of two neighbouring lanes lie in one such word of the plane, two permutations serve four
// vectors. Included inside the target region of matmul.cpp, after
// cpu/avx512vnni/piece_order.inl.

// Vectors 2k and 2k + 1 take their bytes from the 64-bit word first[k][word], each byte from bit
// bits[s % 2][byte] on.
template <int kWidth, int kRun, int kBit>
struct WordOrder {
  using Plane = quant::BitPlane<kWidth, kRun>;
  bool possible = true;
  alignas(64) uint64_t first[2][8] = {};
  alignas(64) uint8_t bits[2][64] = {};
  constexpr WordOrder() {
    for (int byte = 0; byte < 64; ++byte) {
      for (int s = 0; s < 4; ++s) {
        const int value = FirstValue(byte / 4, s) + byte % 4;
        const auto word = static_cast<uint64_t>(Plane::Byte(value) / 8);
        if (byte % 8 == 0 && s % 2 == 0) first[s / 2][byte / 8] = word;
        if (first[s / 2][byte / 8] != word) possible = false;
        const int bit = Plane::Byte(value) % 8 * 8 + Plane::Shift(value) - kBit;
        bits[s % 2][byte] = static_cast<uint8_t>(bit & 63);
      }
    }
  }
};
template <int kWidth, int kRun, int kBit>
constexpr WordOrder<kWidth, kRun, kBit> kWordOrder;

// The pieces of a plane of 256 fields: 32 * kWidth bytes.
template <class Plane>
struct PlanePieces;
template <int kWidth, int kRun>
  requires(kWordOrder<kWidth, kRun, 0>.possible)
struct PlanePieces<quant::BitPlane<kWidth, kRun>> {
  __m512i words[2];

  [[gnu::always_inline]] explicit PlanePieces(const uint8_t* bytes) {
    __m512i plane;
    if constexpr (kWidth == 1) {
      plane = _mm512_castsi256_si512(LoadBytes32(bytes));
    } else {
      plane = _mm512_loadu_si512(bytes);
    }
    const auto& order = kWordOrder<kWidth, kRun, 0>;
    words[0] = _mm512_permutexvar_epi64(_mm512_load_si512(order.first[0]), plane);
    words[1] = _mm512_permutexvar_epi64(_mm512_load_si512(order.first[1]), plane);
  }

  // The bytes of vector s, whose fields begin at bit kBit of each; the other bits are any.
  template <int kBit>
  [[gnu::always_inline]] __m512i Get(int s) const {
    return _mm512_multishift_epi64_epi8(
        _mm512_load_si512(kWordOrder<kWidth, kRun, kBit>.bits[s % 2]), words[s / 2]);
  }
};
template <int kRun>
  requires(!kWordOrder<4, kRun, 0>.possible)
struct PlanePieces<quant::BitPlane<4, kRun>> {
  __m512i low, high;

  [[gnu::always_inline]] explicit PlanePieces(const uint8_t* bytes)
      : PlanePieces(_mm512_loadu_si512(bytes), _mm512_loadu_si512(bytes + 64)) {}
  [[gnu::always_inline]] PlanePieces(__m512i low_half, __m512i high_half)
      : low(low_half), high(high_half) {}

  template <int kBit>
  [[gnu::always_inline]] __m512i Get(int s) const {
    static_assert(kBit == 0);
    const auto& order = kPieceOrder<4, kRun, kBit>;
    return _mm512_srlv_epi32(
        _mm512_permutex2var_epi32(low, _mm512_load_si512(order.first[s]), high),
        _mm512_load_si512(order.shift));
  }
};

// Where the numbers of the pairs of quant/formats/iq2_kl.h lie: a lane's eight in the 64-bit word
// high[word] of the upper bits, four each, for vectors 2k and 2k + 1, in its 32-bit piece
// low[k][lane] of the lower ones. The byte that VPMULTISHIFTQB takes begins at bit low_bits[s % 2]
// or high_bits[s].
struct PairOrder {
  using Low = quant::IQ2_KL::Low;
  using High = quant::IQ2_KL::High;
  alignas(64) uint32_t low[2][16] = {};
  alignas(64) uint64_t high[8] = {};
  alignas(64) uint8_t low_bits[2][64] = {};
  alignas(64) uint8_t high_bits[4][64] = {};
  constexpr PairOrder() {
    for (int byte = 0; byte < 64; ++byte) {
      for (int s = 0; s < 4; ++s) {
        const int lane = byte / 4;
        const int pair = FirstValue(lane, s) / 2 + byte % 4 / 2;
        low[s / 2][lane] = Low::Byte(pair) / 4;
        high[byte / 8] = High::Byte(pair) / 8;
        const int in_lane = lane % 2 * 32 + Low::Byte(pair) % 4 * 8;
        low_bits[s % 2][byte] = static_cast<uint8_t>(in_lane + Low::Shift(pair));
        const int in_word = High::Byte(pair) % 8 * 8 + High::Shift(pair);
        high_bits[s][byte] = static_cast<uint8_t>((in_word - 4) & 63);
      }
    }
  }
};
constexpr PairOrder kPairOrder;

// The numbers of the pairs in LaneOrder::kGroups, two in each lane of a vector: in the lower five
// bits of 16-bit words.
struct PairNumbers {
  __m512i low[2], high;

  [[gnu::always_inline]] explicit PairNumbers(const quant::IQ2_KL::Block& block) {
    const __m512i plane = _mm512_loadu_si512(block.low);
    low[0] = _mm512_permutexvar_epi32(_mm512_load_si512(kPairOrder.low[0]), plane);
    low[1] = _mm512_permutexvar_epi32(_mm512_load_si512(kPairOrder.low[1]), plane);
    high = _mm512_permutexvar_epi64(_mm512_load_si512(kPairOrder.high),
                                    _mm512_castsi128_si512(LoadBytes16(block.high)));
  }

  [[gnu::always_inline]] __m512i Get(int s) const {
    return SelectBits(
        _mm512_set1_epi16(15),
        _mm512_multishift_epi64_epi8(_mm512_load_si512(kPairOrder.low_bits[s % 2]), low[s / 2]),
        _mm512_multishift_epi64_epi8(_mm512_load_si512(kPairOrder.high_bits[s]), high));
  }
};
