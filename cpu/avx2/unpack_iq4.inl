// Formats whose 4-bit codes stand for the levels of a table, for AVX2: quant/formats/iq4_nl.h,
// quant/formats/iq4_xs.h, quant/formats/mxfp4.h, quant/formats/nvfp4.h. Included inside the target
// region of matmul.cpp, after unpack_q4_0.inl.

// The entries of a table of 16 bytes that the low nibbles and the high nibbles of 16 bytes stand
// for, in the lower and the upper half.
[[gnu::always_inline]] inline __m256i LookUpNibbles(__m256i table, const void* p) {
  return _mm256_shuffle_epi8(table, LowNibbles(ShiftHalves(LoadTwice(p), 0, 4)));
}

// Eight runs of 16 bytes of codes.
template <int kStride>
[[gnu::always_inline]] inline void LookUpIq4Levels(const uint8_t* codes, WeightBlock& out) {
  const __m256i levels = StoreSigned(LoadTwice(quant::kIq4Levels));
  for (int h = 0; h < 2; ++h) {
    const uint8_t* half = codes + 4 * h * kStride;
    TransposeCodes(LookUpNibbles(levels, half), LookUpNibbles(levels, half + kStride),
                   LookUpNibbles(levels, half + 2 * kStride),
                   LookUpNibbles(levels, half + 3 * kStride), out.codes + 4 * h);
  }
}

struct UnpackIQ4_NL {
  using Rows = RowsOfIQ4_NL;
  using Codes = SignedCodes<false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::IQ4_NL::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::IQ4_NL::Block);
    WeightBlock out;
    LookUpIq4Levels<kStride>(reinterpret_cast<const quant::IQ4_NL::Block*>(bytes)->codes, out);
    for (int h = 0; h < 2; ++h) {
      out.scales[h] = LoadHalvesOfGroups<kStride>(bytes + 4 * h * kStride);
    }
    return out;
  }
};

struct UnpackIQ4_XS {
  using Rows = RowsOfIQ4_XS;
  using Codes = SignedCodes<false>;
  static constexpr int64_t kBytes = sizeof(quant::IQ4_XS::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::IQ4_XS::Block*>(bytes);
    WeightBlock out;
    LookUpIq4Levels<16>(block.codes, out);
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7);
    ScaleBytes(_mm_shuffle_epi8(PackedScales(block), twice), block.d, out.scales);
    return out;
  }
};

// The levels of E2M1, twice, + 16.
inline __m256i BiasedE2M1Levels() {
  return _mm256_add_epi8(LoadTwice(quant::kE2M1Levels), _mm256_set1_epi8(16));
}

struct UnpackMXFP4 {
  using Rows = RowsOfMXFP4;
  using Codes = CodeTraits<16, 31, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::MXFP4::Block);
  static constexpr int kScaleValues = 32;

  // 2^(exponent - 128), subnormal for 0 and 1.
  [[gnu::always_inline]] static __m256 Scales(const quant::MXFP4::Block* blocks) {
    const __m256i exponents = _mm256_setr_epi32(
        blocks[0].exponent, blocks[2].exponent, blocks[4].exponent, blocks[6].exponent,
        blocks[1].exponent, blocks[3].exponent, blocks[5].exponent, blocks[7].exponent);
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponents, one), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(1 << 21), exponents);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi32(exponents, one)));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    using Block = quant::MXFP4::Block;
    const auto* blocks = reinterpret_cast<const Block*>(bytes);
    const __m256i levels = BiasedE2M1Levels();
    WeightBlock out;
    UnpackNibbleBlocks(blocks, &Block::codes, out);
    for (__m256i& codes : out.codes) codes = _mm256_shuffle_epi8(levels, codes);
    out.scales[0] = Scales(blocks);
    return out;
  }
};

struct UnpackNVFP4 {
  using Codes = CodeTraits<16, 31, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::NVFP4::Block);
  static constexpr int kScaleValues = 16;

  // quant::HalfOfUe4M3 of eight bytes: 2^119 brings the exponent's bias from 7 to that of a float.
  [[gnu::always_inline]] static __m256 Scales(__m128i bytes) {
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 20);
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p119f));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::NVFP4::Block*>(bytes);
    const __m256i levels = BiasedE2M1Levels();
    WeightBlock out;
    __m256i values[8];  // 32 each
    int scales[4];      // four bytes each
    for (int b = 0; b < 4; ++b) {
      const __m256i nibbles = LoadBytes32(blocks[b].codes);
      const __m256i low = _mm256_shuffle_epi8(levels, LowNibbles(nibbles));
      const __m256i high = _mm256_shuffle_epi8(levels, HighNibbles(nibbles));
      const __m256i even = _mm256_unpacklo_epi64(low, high);
      const __m256i odd = _mm256_unpackhi_epi64(low, high);
      values[2 * b] = JoinLower(even, odd);
      values[2 * b + 1] = JoinUpper(even, odd);
      std::memcpy(&scales[b], blocks[b].scales, sizeof(int));
    }
    for (int h = 0; h < 2; ++h) {
      const __m256i* v = values + 4 * h;
      TransposeCodes(v[0], v[1], v[2], v[3], out.codes + 4 * h);
    }
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    const __m128i all = _mm_setr_epi32(scales[0], scales[1], scales[2], scales[3]);
    const __m128i nan = _mm_cmpeq_epi8(all, _mm_set1_epi8(0x7f));
    const __m128i magnitudes = _mm_andnot_si128(nan, _mm_and_si128(all, _mm_set1_epi8(0x7f)));
    const __m128i groups = _mm_shuffle_epi8(magnitudes, order);
    out.scales[0] = Scales(groups);
    out.scales[1] = Scales(_mm_unpackhi_epi64(groups, groups));
    return out;
  }
};
