// Formats of small blocks, or of whole bytes, that are not llama.cpp's oldest, for AVX-512:
// quant/q6_0.h, quant/q8_kv.h, quant/iq2_bn.h, quant/q1_0.h, quant/q2_0.h. Included inside the
// target region of matmul.cpp, after unpack_pieces.inl.

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
