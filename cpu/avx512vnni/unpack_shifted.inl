// ik_llama.cpp's formats of shifted levels for AVX-512: quant/shifted_fit.h, quant/iq2_k.h to
// quant/iq6_k.h, quant/iq2_ks.h to quant/iq5_ks.h. Included inside the target region of matmul.cpp,
// after unpack_pieces.inl and cpu/avx2/packed_scales.inl. One unpacker serves them all: a format
// has planes of bits, levels and scales.

// Fields [64k, 64k + 64) of an array, a byte each.
template <int kWidth>
[[gnu::always_inline]] inline __m512i FieldBytes(quant::BitPlane<kWidth, 32> /*plane*/,
                                                 const uint8_t* bytes, int k) {
  constexpr int kOfByte = 8 / kWidth;
  const __m512i run = _mm512_broadcast_i64x4(LoadBytes32(bytes + 2 * k / kOfByte * 32));
  const int first = 2 * k % kOfByte * kWidth;
  const __m512i shift = Join(_mm256_set1_epi32(first), _mm256_set1_epi32(first + kWidth));
  return _mm512_and_si512(_mm512_srlv_epi32(run, shift), _mm512_set1_epi8((1 << kWidth) - 1));
}
// Two runs of 16 bytes.
[[gnu::always_inline]] inline __m512i NibblesOfRuns(__m256i bytes) {
  const __m512i runs = _mm512_castsi256_si512(bytes);
  const __m512i twice = _mm512_shuffle_i64x2(runs, runs, 0x50);
  const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
  return _mm512_and_si512(_mm512_srlv_epi64(twice, shift), _mm512_set1_epi8(0x0f));
}
[[gnu::always_inline]] inline __m512i FieldBytes(quant::BitPlane<4, 16> /*plane*/,
                                                 const uint8_t* bytes, int k) {
  return NibblesOfRuns(LoadBytes32(bytes + 32 * k));
}
[[gnu::always_inline]] inline __m512i FieldBytes(quant::BitPlane<1, 16> /*plane*/,
                                                 const uint8_t* bytes, int k) {
  const __m512i shift =
      _mm512_add_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), _mm512_set1_epi64(4 * k));
  const __m512i run = _mm512_broadcast_i32x4(LoadBytes16(bytes));
  return _mm512_and_si512(_mm512_srlv_epi64(run, shift), _mm512_set1_epi8(1));
}

// Codes [64k, 64k + 64) of a block, whose upper bits have a plane of their own.
template <class Format>
[[gnu::always_inline]] inline __m512i CodeBytes(const typename Format::Block& block, int k) {
  if constexpr (requires { block.words; }) {  // quant/iq4_kss.h
    const __m256i words =
        _mm256_and_si256(LoadBytes32(block.words + 16 * k), _mm256_set1_epi16(-2));
    return NibblesOfRuns(_mm256_xor_si256(words, _mm256_srli_epi16(words, 1)));
  } else if constexpr (requires { block.high; }) {
    constexpr int kLowBits = Format::kLevels.kCount == 8 ? 2 : 4;
    const __m512i low = FieldBytes(typename Format::Low{}, block.low, k);
    const __m512i high = FieldBytes(typename Format::High{}, block.high, k);
    return _mm512_or_si512(low, _mm512_slli_epi16(high, kLowBits));
  } else {
    return FieldBytes(typename Format::Low{}, block.low, k);
  }
}

// Sixteen scales, and the block's unit where it has one.
template <class Block>
[[gnu::always_inline]] inline __m512 ScaleLanes(const Block& block) {
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m128i scales = _mm_shuffle_epi8(SixteenScales(block), order);
  const __m512 lanes = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales));
  if constexpr (requires { block.d; }) {
    return _mm512_mul_ps(lanes, BroadcastHalf(block.d));
  } else {
    return lanes;
  }
}

// Levels + 128, repeated where there are fewer than 16.
template <class Format>
struct LevelBytes {
  static constexpr int kCount = Format::kLevels.kCount;
  alignas(64) uint8_t bytes[kCount < 16 ? 16 : kCount] = {};
  constexpr LevelBytes() {
    for (size_t i = 0; i < sizeof(bytes); ++i) {
      bytes[i] = static_cast<uint8_t>(Format::kLevels.levels[i % kCount] + 128);
    }
  }
};
template <class Format>
constexpr LevelBytes<Format> kLevelBytes;

// The entries of a table of 16, 32 or 64 bytes. Codes that are looked up in the wrong sixteen are
// replaced.
template <int kCount>
[[gnu::always_inline]] inline __m512i LookUpCodes(const uint8_t* table, __m512i codes) {
  if constexpr (kCount <= 16) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(LoadBytes16(table)), codes);
  } else {
    constexpr int kHalf = kCount / 2;
    const __mmask64 upper = _mm512_test_epi8_mask(codes, _mm512_set1_epi8(kHalf));
    return _mm512_mask_blend_epi8(upper, LookUpCodes<kHalf>(table, codes),
                                  LookUpCodes<kHalf>(table + kHalf, codes));
  }
}

template <class Format>
struct UnpackShifted {
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = sizeof(typename Format::Block);
  static constexpr int kScaleValues = 16;
  static constexpr bool kHasRowFactor = requires { typename Format::Head; };

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const typename Format::Block*>(bytes);
    WeightBlock out;
    TransposeCodes(CodeBytes<Format>(block, 0), CodeBytes<Format>(block, 1),
                   CodeBytes<Format>(block, 2), CodeBytes<Format>(block, 3), out);
    const __m512i bit = _mm512_sllv_epi32(_mm512_set1_epi32(1), GroupOfLane());
    const __mmask16 shifted = _mm512_test_epi32_mask(_mm512_set1_epi32(ShiftedGroups(block)), bit);
    const __m512i more = _mm512_maskz_set1_epi32(shifted, 0x01010101 * Format::kLevels.shift);
    const auto level = [&](__m512i codes) __attribute__((always_inline)) {
      return _mm512_add_epi8(LookUpCodes<Format::kLevels.kCount>(kLevelBytes<Format>.bytes, codes),
                             more);
    };
    out.codes0 = level(out.codes0);
    out.codes1 = level(out.codes1);
    out.codes2 = level(out.codes2);
    out.codes3 = level(out.codes3);
    out.scales = ScaleLanes(block);
    return out;
  }
};

// The first and the second levels of pairs, + 128.
struct PairBytes {
  alignas(64) uint8_t bytes[2][32] = {};
  constexpr PairBytes() {
    for (int i = 0; i < 32; ++i) {
      for (int j = 0; j < 2; ++j) {
        bytes[j][i] = static_cast<uint8_t>(quant::kLevelPairs[i][j] + 128);
      }
    }
  }
};
constexpr PairBytes kPairBytes;

// Pairs of levels, quant/iq2_kl.h.
struct UnpackIQ2_KL {
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_KL::Block);
  static constexpr int kScaleValues = 16;
  static constexpr bool kHasRowFactor = true;

  // 128 values, from 64 numbers of pairs.
  [[gnu::always_inline]] static void LookUp(const quant::IQ2_KL::Block& block, int k,
                                            __m512i* values) {
    const __m512i low = FieldBytes(quant::IQ2_KL::Low{}, block.low, k);
    const __m512i high = FieldBytes(quant::IQ2_KL::High{}, block.high, k);
    const __m512i pairs = _mm512_or_si512(low, _mm512_slli_epi16(high, 4));
    const __m512i first = LookUpCodes<32>(kPairBytes.bytes[0], pairs);
    const __m512i second = LookUpCodes<32>(kPairBytes.bytes[1], pairs);
    const __m512i even = _mm512_unpacklo_epi8(first, second);
    const __m512i odd = _mm512_unpackhi_epi8(first, second);
    values[0] = _mm512_permutex2var_epi64(even, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), odd);
    values[1] = _mm512_permutex2var_epi64(even, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), odd);
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_KL::Block*>(bytes);
    __m512i values[4];
    LookUp(block, 0, values);
    LookUp(block, 1, values + 2);
    WeightBlock out;
    TransposeCodes(values[0], values[1], values[2], values[3], out);
    out.scales = ScaleLanes(block);
    return out;
  }
};

// Eight blocks of Q6_0, quant/q6_0.h.
struct UnpackQ6_0 {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q6_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static __m256i OneBlock(const quant::Q6_0::Block& block) {
    const __m256i low = _mm256_broadcastsi128_si256(LoadBytes16(block.low));
    const __m256i high = _mm256_broadcastq_epi64(LoadBytes8(block.high));
    const __m256i nibbles = _mm256_and_si256(_mm256_srlv_epi64(low, _mm256_setr_epi64x(0, 0, 4, 4)),
                                             _mm256_set1_epi8(0x0f));
    const __m256i upper = _mm256_and_si256(_mm256_srlv_epi64(high, _mm256_setr_epi64x(0, 4, 2, 6)),
                                           _mm256_set1_epi8(3));
    return _mm256_or_si256(nibbles, _mm256_slli_epi16(upper, 4));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::Q6_0::Block*>(bytes);
    WeightBlock out;
    TransposeCodes(Join(OneBlock(blocks[0]), OneBlock(blocks[1])),
                   Join(OneBlock(blocks[2]), OneBlock(blocks[3])),
                   Join(OneBlock(blocks[4]), OneBlock(blocks[5])),
                   Join(OneBlock(blocks[6]), OneBlock(blocks[7])), out);
    out.scales = LoadPairHalves<sizeof(quant::Q6_0::Block)>(bytes);
    return out;
  }
};

// Eight blocks of Q8_KV, quant/q8_kv.h.
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

// Four blocks of IQ2_BN, quant/iq2_bn.h.
struct UnpackIQ2_BN {
  using Codes = CodeTraits<1, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::IQ2_BN::Block);
  static constexpr int kScaleValues = 32;
  static constexpr bool kHasRowFactor = true;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto piece = [&](int k) __attribute__((always_inline)) {
      const __m512i run = _mm512_broadcast_i32x4(LoadBytes16(bytes + 16 * k));
      const __m512i shift = _mm512_setr_epi64(0, 0, 2, 2, 4, 4, 6, 6);
      return _mm512_and_si512(_mm512_srlv_epi64(run, shift), _mm512_set1_epi8(3));
    };
    WeightBlock out;
    TransposeCodes(piece(0), piece(1), piece(2), piece(3), out);
    out.scales = _mm512_set1_ps(1.0f);
    return out;
  }
};

// Two blocks of Q1_0, quant/q1_0.h.
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

// Four blocks of Q2_0, quant/q2_0.h.
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
