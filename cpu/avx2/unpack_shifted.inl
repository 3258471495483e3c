// ik_llama.cpp's formats of shifted levels for AVX2: quant/search/shifted_fit.h,
// quant/formats/iq2_k.h to quant/formats/iq6_k.h, quant/formats/iq2_ks.h to quant/formats/iq5_ks.h.
// Included inside the target region of matmul.cpp, after unpack_pieces.inl and packed_scales.inl.
// One unpacker serves them all: a format has planes of bits, levels and scales.

// Fields [32k, 32k + 32) of an array, a byte each.
template <int kWidth>
[[gnu::always_inline]] inline __m256i FieldBytes(quant::BitPlane<kWidth, 32> /*plane*/,
                                                 const uint8_t* bytes, int k) {
  constexpr int kOfByte = 8 / kWidth;
  const __m256i run = LoadBytes32(bytes + k / kOfByte * 32);
  return _mm256_and_si256(_mm256_srli_epi16(run, k % kOfByte * kWidth),
                          _mm256_set1_epi8((1 << kWidth) - 1));
}
[[gnu::always_inline]] inline __m256i FieldBytes(quant::BitPlane<4, 16> /*plane*/,
                                                 const uint8_t* bytes, int k) {
  return LowNibbles(ShiftHalves(LoadTwice(bytes + 16 * k), 0, 4));
}
[[gnu::always_inline]] inline __m256i FieldBytes(quant::BitPlane<1, 16> /*plane*/,
                                                 const uint8_t* bytes, int k) {
  return _mm256_and_si256(ShiftHalves(LoadTwice(bytes), 2 * k, 2 * k + 1), _mm256_set1_epi8(1));
}

// Codes [32k, 32k + 32) of a block, whose upper bits have a plane of their own.
template <class Format>
[[gnu::always_inline]] inline __m256i CodeBytes(const typename Format::Block& block, int k) {
  if constexpr (requires { block.words; }) {  // quant/formats/iq4_kss.h
    const __m256i words = _mm256_and_si256(LoadTwice(block.words + 8 * k), _mm256_set1_epi16(-2));
    const __m256i codes = _mm256_xor_si256(words, _mm256_srli_epi16(words, 1));
    return LowNibbles(ShiftHalves(codes, 0, 4));
  } else if constexpr (requires { block.high; }) {
    constexpr int kLowBits = Format::kLevels.kCount == 8 ? 2 : 4;
    const __m256i low = FieldBytes(typename Format::Low{}, block.low, k);
    const __m256i high = FieldBytes(typename Format::High{}, block.high, k);
    return _mm256_or_si256(low, _mm256_slli_epi16(high, kLowBits));
  } else {
    return FieldBytes(typename Format::Low{}, block.low, k);
  }
}

// Sixteen scales, and the block's unit where it has one.
template <class Block>
[[gnu::always_inline]] inline void ScaleLanes(const Block& block, __m256* out) {
  if constexpr (requires { block.d; }) {
    ScaleGroups(SixteenScales(block), block.d, out);
  } else {
    constexpr uint16_t kOne = 0x3c00;
    ScaleGroups(SixteenScales(block), quant::PackedHalf::FromBits(kOne), out);
  }
}

// Levels, repeated where there are fewer than 16.
template <class Format>
struct LevelBytes {
  static constexpr int kCount = Format::kLevels.kCount;
  alignas(32) int8_t bytes[kCount < 16 ? 16 : kCount] = {};
  constexpr LevelBytes() {
    for (size_t i = 0; i < sizeof(bytes); ++i) bytes[i] = Format::kLevels.levels[i % kCount];
  }
};
template <class Format>
constexpr LevelBytes<Format> kLevelBytes;

// The entries of a table of 16, 32 or 64 bytes. Codes that are looked up in the wrong sixteen are
// replaced.
template <int kCount>
[[gnu::always_inline]] inline __m256i LookUpCodes(const int8_t* table, __m256i codes) {
  if constexpr (kCount <= 16) {
    return _mm256_shuffle_epi8(LoadTwice(table), codes);
  } else {
    constexpr int kHalf = kCount / 2;
    // The bit that tells the halves apart, as the top bit of its byte.
    const __m256i upper = _mm256_slli_epi16(codes, kHalf == 16 ? 3 : 2);
    return _mm256_blendv_epi8(LookUpCodes<kHalf>(table, codes),
                              LookUpCodes<kHalf>(table + kHalf, codes), upper);
  }
}

template <class Format>
struct UnpackShifted {
  using Codes = SignedCodes<false>;
  static constexpr int64_t kBytes = sizeof(typename Format::Block);
  static constexpr int kScaleValues = 16;
  static constexpr bool kHasRowFactor = requires { typename Format::Head; };

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const typename Format::Block*>(bytes);
    const int shifted = ShiftedGroups(block);
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      TransposeCodes(CodeBytes<Format>(block, 4 * h), CodeBytes<Format>(block, 4 * h + 1),
                     CodeBytes<Format>(block, 4 * h + 2), CodeBytes<Format>(block, 4 * h + 3),
                     out.codes + 4 * h);
      // Bits of the groups 0, 2, 4, 6, 1, 3, 5, 7 of a half, in lane order.
      const __m256i bit = _mm256_setr_epi32(1, 4, 16, 64, 2, 8, 32, 128);
      const __m256i bits = _mm256_and_si256(_mm256_set1_epi32(shifted >> (8 * h)), bit);
      const __m256i more =
          _mm256_and_si256(_mm256_cmpeq_epi32(bits, bit), _mm256_set1_epi8(Format::kLevels.shift));
      for (int s = 4 * h; s < 4 * h + 4; ++s) {
        const __m256i levels =
            LookUpCodes<Format::kLevels.kCount>(kLevelBytes<Format>.bytes, out.codes[s]);
        out.codes[s] = StoreSigned(_mm256_add_epi8(levels, more));
      }
    }
    ScaleLanes(block, out.scales);
    return out;
  }
};

// The first and the second levels of pairs.
struct PairBytes {
  alignas(32) int8_t bytes[2][32] = {};
  constexpr PairBytes() {
    for (int i = 0; i < 32; ++i) {
      for (int j = 0; j < 2; ++j) bytes[j][i] = quant::kLevelPairs[i][j];
    }
  }
};
constexpr PairBytes kPairBytes;

// Pairs of levels, quant/formats/iq2_kl.h.
struct UnpackIQ2_KL {
  using Codes = SignedCodes<false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ2_KL::Block);
  static constexpr int kScaleValues = 16;
  static constexpr bool kHasRowFactor = true;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ2_KL::Block*>(bytes);
    __m256i values[8];
    for (int k = 0; k < 4; ++k) {  // 64 values, from 32 numbers of pairs
      const __m256i low = FieldBytes(quant::IQ2_KL::Low{}, block.low, k);
      const __m256i high = FieldBytes(quant::IQ2_KL::High{}, block.high, k);
      const __m256i pairs = _mm256_or_si256(low, _mm256_slli_epi16(high, 4));
      const __m256i first = StoreSigned(LookUpCodes<32>(kPairBytes.bytes[0], pairs));
      const __m256i second = StoreSigned(LookUpCodes<32>(kPairBytes.bytes[1], pairs));
      const __m256i even = _mm256_unpacklo_epi8(first, second);
      const __m256i odd = _mm256_unpackhi_epi8(first, second);
      values[2 * k] = _mm256_permute2x128_si256(even, odd, 0x20);
      values[2 * k + 1] = _mm256_permute2x128_si256(even, odd, 0x31);
    }
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const __m256i* v = values + 4 * h;
      TransposeCodes(v[0], v[1], v[2], v[3], out.codes + 4 * h);
    }
    ScaleLanes(block, out.scales);
    return out;
  }
};

// Eight blocks of Q6_0, quant/formats/q6_0.h.
struct UnpackQ6_0 {
  using Codes = CodeTraits<32, 63, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q6_0::Block);
  static constexpr int kScaleValues = 16;

  [[gnu::always_inline]] static __m256i OneBlock(const quant::Q6_0::Block& block) {
    long long eight;
    std::memcpy(&eight, block.high, sizeof(eight));
    const __m256i nibbles = LowNibbles(ShiftHalves(LoadTwice(block.low), 0, 4));
    const __m256i upper = _mm256_and_si256(
        _mm256_srlv_epi64(_mm256_set1_epi64x(eight), _mm256_setr_epi64x(0, 4, 2, 6)),
        _mm256_set1_epi8(3));
    return _mm256_or_si256(nibbles, _mm256_slli_epi16(upper, 4));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q6_0::Block);
    const auto* blocks = reinterpret_cast<const quant::Q6_0::Block*>(bytes);
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const auto* half = blocks + 4 * h;
      TransposeCodes(OneBlock(half[0]), OneBlock(half[1]), OneBlock(half[2]), OneBlock(half[3]),
                     out.codes + 4 * h);
      out.scales[h] = LoadHalvesOfGroups<kStride>(bytes + 4 * h * kStride);
    }
    return out;
  }
};

// Eight blocks of Q8_KV, quant/formats/q8_kv.h.
struct UnpackQ8_KV {
  using Codes = SignedCodes<false>;
  static constexpr int64_t kBytes = 256;
  static constexpr int kScaleValues = 32;
  static constexpr bool kHasRowFactor = true;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const std::byte* half = bytes + 128 * h;
      TransposeCodes(StoreSigned(LoadBytes32(half)), StoreSigned(LoadBytes32(half + 32)),
                     StoreSigned(LoadBytes32(half + 64)), StoreSigned(LoadBytes32(half + 96)),
                     out.codes + 4 * h);
      out.scales[h] = _mm256_set1_ps(1.0f);
    }
    return out;
  }
};

// Four blocks of IQ2_BN, quant/formats/iq2_bn.h.
struct UnpackIQ2_BN {
  using Codes = CodeTraits<1, 3, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::IQ2_BN::Block);
  static constexpr int kScaleValues = 32;
  static constexpr bool kHasRowFactor = true;

  [[gnu::always_inline]] static __m256i Fields(const std::byte* run, int shift) {
    return _mm256_and_si256(ShiftHalves(LoadTwice(run), shift, shift + 2), _mm256_set1_epi8(3));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const std::byte* half = bytes + 32 * h;
      TransposeCodes(Fields(half, 0), Fields(half, 4), Fields(half + 16, 0), Fields(half + 16, 4),
                     out.codes + 4 * h);
      out.scales[h] = _mm256_set1_ps(1.0f);
    }
    return out;
  }
};

// Two blocks of Q1_0, quant/formats/q1_0.h.
struct UnpackQ1_0 {
  using Codes = CodeTraits<1, 2, false>;
  static constexpr int64_t kBytes = 2 * sizeof(quant::Q1_0::Block);
  static constexpr int kScaleValues = 32;

  // Bit i as byte i, 0 or 2.
  [[gnu::always_inline]] static __m256i Codes32(const uint8_t* signs) {
    int word;
    std::memcpy(&word, signs, sizeof(word));
    const __m256i from =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
    const __m256i found =
        _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), from), bits);
    return _mm256_and_si256(_mm256_cmpeq_epi8(found, bits), _mm256_set1_epi8(2));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::Q1_0::Block*>(bytes);
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const uint8_t* signs = blocks[h].signs;
      TransposeCodes(Codes32(signs), Codes32(signs + 4), Codes32(signs + 8), Codes32(signs + 12),
                     out.codes + 4 * h);
      out.scales[h] = BroadcastHalf(blocks[h].d);
    }
    return out;
  }
};

// Four blocks of Q2_0, quant/formats/q2_0.h.
struct UnpackQ2_0 {
  using Codes = CodeTraits<1, 3, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::Q2_0::Block);
  static constexpr int kScaleValues = 32;

  // Each byte's four fields in the bytes of a word.
  [[gnu::always_inline]] static __m256i Codes32(const uint8_t* codes) {
    const __m256i words =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
    const __m256i two = _mm256_or_si256(words, _mm256_slli_epi32(words, 6));
    return _mm256_and_si256(_mm256_or_si256(two, _mm256_slli_epi32(two, 12)), _mm256_set1_epi8(3));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::Q2_0::Block*>(bytes);
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const auto* half = blocks + 2 * h;
      TransposeCodes(Codes32(half[0].codes), Codes32(half[0].codes + 8), Codes32(half[1].codes),
                     Codes32(half[1].codes + 8), out.codes + 4 * h);
      // Lane 4q + v: group 2v + q, of the first block where v < 2.
      out.scales[h] = _mm256_blend_ps(BroadcastHalf(half[0].d), BroadcastHalf(half[1].d), 0xcc);
    }
    return out;
  }
};
