// Q2_K, Q3_K, TQ1_0 and TQ2_0 for AVX2: quant/formats/q2_k.h, quant/formats/q3_k.h,
// quant/formats/tq1_0.h, quant/formats/tq2_0.h. Included inside the target region of matmul.cpp.

// 32 codes of two bits: bits 2k and 2k + 1 of every byte.
[[gnu::always_inline]] inline __m256i TwoBits(__m256i bytes, int k) {
  return _mm256_and_si256(_mm256_srli_epi16(bytes, 2 * k), _mm256_set1_epi8(3));
}

struct UnpackQ2_K {
  using Rows = RowsOfQ2_K;
  using Codes = CodeTraits<0, 3, true>;
  static constexpr int64_t kBytes = sizeof(quant::Q2_K::Block);
  static constexpr int kScaleValues = 16;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q2_K::Block*>(bytes);
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const __m256i run = LoadBytes32(block.codes + 32 * h);
      TransposeCodes(TwoBits(run, 0), TwoBits(run, 1), TwoBits(run, 2), TwoBits(run, 3),
                     out.codes + 4 * h);
    }
    const __m128i pairs = LoadBytes16(block.scales);
    const __m128i mask = _mm_set1_epi8(15);
    ScaleGroups(_mm_and_si128(pairs, mask), block.d, out.scales);
    ScaleGroups(_mm_and_si128(_mm_srli_epi16(pairs, 4), mask), block.dmin, out.offsets);
    return out;
  }
};

struct UnpackQ3_K {
  using Rows = RowsOfQ3_K;
  using Codes = CodeTraits<4, 7, false>;
  static constexpr int64_t kBytes = sizeof(quant::Q3_K::Block);
  static constexpr int kScaleValues = 16;

  // Bit `run` of every byte of `high` as bit 2 of the code.
  [[gnu::always_inline]] static __m256i AddHighBit(__m256i codes, __m256i high, int run) {
    const __m256i shifted =
        run < 2 ? _mm256_slli_epi16(high, 2 - run) : _mm256_srli_epi16(high, run - 2);
    return _mm256_or_si256(codes, _mm256_and_si256(shifted, _mm256_set1_epi8(4)));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::Q3_K::Block*>(bytes);
    const __m256i high = LoadBytes32(block.high);
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const __m256i run = LoadBytes32(block.low + 32 * h);
      TransposeCodes(AddHighBit(TwoBits(run, 0), high, 4 * h),
                     AddHighBit(TwoBits(run, 1), high, 4 * h + 1),
                     AddHighBit(TwoBits(run, 2), high, 4 * h + 2),
                     AddHighBit(TwoBits(run, 3), high, 4 * h + 3), out.codes + 4 * h);
    }
    ScaleGroups(PackedScales(block), block.d, out.scales);
    return out;
  }
};

struct UnpackTQ1_0 {
  using Codes = CodeTraits<1, 3, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = sizeof(quant::TQ1_0::Block);
  static constexpr int kScaleValues = 32;

  // From a fraction of 256 in base 3, less 128, to the one that begins a digit later: three times
  // 128 is 128 more than a multiple of 256.
  [[gnu::always_inline]] static __m256i Advance(__m256i fractions) {
    return _mm256_add_epi8(_mm256_add_epi8(fractions, fractions), fractions);
  }

  // The first digits: 3 * fraction / 256.
  [[gnu::always_inline]] static __m256i Digits(__m256i fractions) {
    const __m256i none = _mm256_cmpgt_epi8(_mm256_set1_epi8(86 - 128), fractions);
    const __m256i at_most_one = _mm256_cmpgt_epi8(_mm256_set1_epi8(171 - 128), fractions);
    return _mm256_add_epi8(_mm256_set1_epi8(2), _mm256_add_epi8(none, at_most_one));
  }

  [[gnu::always_inline]] static __m256i Less128(__m256i bytes) {
    return _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
  }

  // The last sixteen values, four digits of four bytes, in both halves.
  [[gnu::always_inline]] static __m256i LastFractions(const uint8_t* bytes) {
    int word;
    std::memcpy(&word, bytes, sizeof(word));
    const __m256i first = Less128(_mm256_set1_epi32(word));
    const __m256i two = _mm256_blend_epi32(first, Advance(first), 0xaa);
    return _mm256_blend_epi32(two, Advance(Advance(two)), 0xcc);
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::TQ1_0::Block*>(bytes);
    __m256i pairs[8];  // 32 values each
    __m256i fractions = Less128(LoadBytes32(block.digits));
    for (int n = 0; n < 5; ++n) {
      pairs[n] = fractions;
      fractions = Advance(fractions);
    }
    const __m256i middle = Less128(LoadTwice(block.digits + 32));
    pairs[5] = _mm256_blend_epi32(middle, Advance(middle), 0xf0);
    pairs[6] = Advance(Advance(pairs[5]));
    pairs[7] =
        _mm256_blend_epi32(Advance(Advance(pairs[6])), LastFractions(block.digits + 48), 0xf0);
    WeightBlock out;
    for (int i = 0; i < 8; i += 2) {
      out.codes[i] = Digits(JoinLower(pairs[i], pairs[i + 1]));
      out.codes[i + 1] = Digits(JoinUpper(pairs[i], pairs[i + 1]));
    }
    out.scales[0] = BroadcastHalf(block.d);
    return out;
  }
};

struct UnpackTQ2_0 {
  using Codes = CodeTraits<1, 3, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = sizeof(quant::TQ2_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::TQ2_0::Block*>(bytes);
    const __m256i mask = _mm256_set1_epi8(3);
    WeightBlock out;
    for (int i = 0; i < 8; ++i) {
      const __m256i run = LoadTwice(block.codes + 32 * (i / 4) + 16 * (i % 2));
      const int shift = i % 4 / 2 * 4;
      out.codes[i] = _mm256_and_si256(ShiftHalves(run, shift, shift + 2), mask);
    }
    out.scales[0] = BroadcastHalf(block.d);
    return out;
  }
};
