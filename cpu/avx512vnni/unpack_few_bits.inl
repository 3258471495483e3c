// Formats of small blocks, or of whole bytes, that are not llama.cpp's oldest, for AVX-512:
// quant/formats/q6_0.h, quant/formats/q8_kv.h, quant/formats/iq2_bn.h, quant/formats/q1_0.h,
// quant/formats/q2_0.h, quant/formats/tq2_0.h. Included inside the target region of matmul.cpp,
// after unpack_q2_k.inl.

// Words of 16 bits of two vectors, which begin at blocks a and a + 2 of Q6_0 or, the second one,
// `late` words before. The codes: of four blocks bytes 0 to 7 of the lower bits, then bytes 8
// to 15. The rest: of four blocks the eight bytes of the upper bits, then twice d, in words 16 to
// 23 or 24 to 31.
struct WordsOfQ6_0 {
  alignas(64) uint16_t codes[32] = {};
  alignas(64) uint16_t rest[32] = {};
  constexpr explicit WordsOfQ6_0(int late, int place_of_d) {
    constexpr int kHigh = offsetof(quant::Q6_0::Block, high) / 2;
    constexpr int kLow = offsetof(quant::Q6_0::Block, low) / 2;
    for (int block = 0; block < 4; ++block) {
      const int begin = static_cast<int>(sizeof(quant::Q6_0::Block)) / 2 * (block % 2) +
                        (block >= 2 ? 32 + late : 0);
      for (int w = 0; w < 4; ++w) {
        codes[4 * block + w] = static_cast<uint16_t>(begin + kLow + w);
        codes[4 * block + w + 16] = static_cast<uint16_t>(begin + kLow + 4 + w);
        rest[4 * block + w] = static_cast<uint16_t>(begin + kHigh + w);
      }
      rest[place_of_d + 2 * block] = static_cast<uint16_t>(begin);
      rest[place_of_d + 2 * block + 1] = static_cast<uint16_t>(begin);
    }
  }
};
constexpr WordsOfQ6_0 kFirstWordsOfQ6_0(0, 16);
constexpr WordsOfQ6_0 kLastWordsOfQ6_0(6, 24);

// Eight blocks of Q6_0, quant/formats/q6_0.h.
struct UnpackQ6_0 {
  using Codes = CodeTraits<32, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q6_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    static_assert(kBytes == 208);
    const __m512i v0 = _mm512_loadu_si512(bytes);
    const __m512i v1 = _mm512_loadu_si512(bytes + 52);
    const __m512i v2 = _mm512_loadu_si512(bytes + 104);
    const __m512i v3 = _mm512_loadu_si512(bytes + 208 - 64);  // six words before block 6
    const auto pick = [&](__m512i a, const uint16_t* words, __m512i b)
        __attribute__((always_inline)) {
      return _mm512_permutex2var_epi16(a, _mm512_load_si512(words), b);
    };
    const __m512i codes_a = pick(v0, kFirstWordsOfQ6_0.codes, v1);
    const __m512i codes_b = pick(v2, kLastWordsOfQ6_0.codes, v3);
    const __m512i rest_a = pick(v0, kFirstWordsOfQ6_0.rest, v1);
    const __m512i rest_b = pick(v2, kLastWordsOfQ6_0.rest, v3);
    const __m512i first = _mm512_shuffle_i64x2(codes_a, codes_b, 0x44);
    const __m512i second = _mm512_shuffle_i64x2(codes_a, codes_b, 0xee);
    const __m512i high = _mm512_shuffle_i64x2(rest_a, rest_b, 0x44);
    const auto join = [&](__m512i low, __m512i upper) __attribute__((always_inline)) {
      return _mm512_and_si512(SelectBits(_mm512_set1_epi8(15), low, upper), _mm512_set1_epi8(63));
    };
    WeightBlock out;
    out.codes0 = join(first, _mm512_slli_epi16(high, 4));
    out.codes1 = join(second, high);
    out.codes2 = join(_mm512_srli_epi16(first, 4), _mm512_slli_epi16(high, 2));
    out.codes3 = join(_mm512_srli_epi16(second, 4), _mm512_srli_epi16(high, 2));
    const __m512i halves = _mm512_mask_blend_epi64(0xc0, rest_a, rest_b);
    out.scales = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
    return out;
  }
};

// Eight blocks of Q8_KV, quant/formats/q8_kv.h.
struct UnpackQ8_KV {
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = 256;
  static constexpr int kScaleValues = 32;
  static constexpr bool kHasRowFactor = true;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto piece = [&](int k) __attribute__((always_inline)) {
      return _mm512_xor_si512(_mm512_loadu_si512(bytes + 64 * k),
                              _mm512_set1_epi8(static_cast<char>(0x80)));
    };
    WeightBlock out;
    TransposeCodes(piece(0), piece(1), piece(2), piece(3), out);
    out.scales = _mm512_set1_ps(1.0f);
    return out;
  }
};

// Four blocks of IQ2_BN, quant/formats/iq2_bn.h.
struct UnpackIQ2_BN {
  using Codes = CodeTraits<1, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::IQ2_BN::Block);
  static constexpr int kScaleValues = 32;
  static constexpr bool kHasRowFactor = true;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    WeightBlock out;
    TakeTwoBits(PlanePieces<quant::IQ2_BN::Codes>(reinterpret_cast<const uint8_t*>(bytes)), out);
    out.scales = _mm512_set1_ps(1.0f);
    return out;
  }
};

// One block of TQ2_0.
struct UnpackTQ2_0 {
  using Codes = CodeTraits<1, false>;
  static constexpr int64_t kBytes = sizeof(quant::TQ2_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::TQ2_0::Block*>(bytes);
    WeightBlock out;
    TakeTwoBits(PlanePieces<quant::TQ2_0::Codes>(block.codes), out);
    out.scales = BroadcastHalf(block.d);
    return out;
  }
};

// Two blocks of Q1_0, quant/formats/q1_0.h.
struct UnpackQ1_0 {
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = 2 * sizeof(quant::Q1_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static __m512i Codes64(const uint8_t* signs) {
    uint64_t bits;
    std::memcpy(&bits, signs, sizeof(bits));
    return _mm512_mask_blend_epi8(bits, _mm512_set1_epi8(127),
                                  _mm512_set1_epi8(static_cast<char>(129)));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::Q1_0::Block*>(bytes);
    WeightBlock out;
    TransposeCodes(Codes64(blocks[0].signs), Codes64(blocks[0].signs + 8), Codes64(blocks[1].signs),
                   Codes64(blocks[1].signs + 8), out);
    // Lane 4q + v: group 4v + q, of the first block where v < 2.
    out.scales =
        _mm512_mask_blend_ps(0xcccc, BroadcastHalf(blocks[0].d), BroadcastHalf(blocks[1].d));
    return out;
  }
};

// Four blocks of Q2_0, quant/formats/q2_0.h.
struct UnpackQ2_0 {
  using Codes = CodeTraits<1, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::Q2_0::Block);
  static constexpr int kScaleValues = 32;

  // Each byte's four fields in the bytes of a word.
  [[gnu::always_inline]] static __m512i Codes64(const uint8_t* codes) {
    const __m512i words = _mm512_cvtepu8_epi32(LoadBytes16(codes));
    const __m512i two = _mm512_or_si512(words, _mm512_slli_epi32(words, 6));
    return _mm512_and_si512(_mm512_or_si512(two, _mm512_slli_epi32(two, 12)), _mm512_set1_epi8(3));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::Q2_0::Block*>(bytes);
    WeightBlock out;
    TransposeCodes(Codes64(blocks[0].codes), Codes64(blocks[1].codes), Codes64(blocks[2].codes),
                   Codes64(blocks[3].codes), out);
    // Lane 4q + v: group 4v + q, of block v.
    const auto half = [&](int v) { return static_cast<short>(blocks[v].d.bits()); };
    const __m128i halves = _mm_setr_epi16(half(0), half(1), half(2), half(3), 0, 0, 0, 0);
    out.scales = _mm512_broadcast_f32x4(_mm_cvtph_ps(halves));
    return out;
  }
};
