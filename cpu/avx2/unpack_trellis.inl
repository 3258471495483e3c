// ik_llama.cpp's trellis formats for AVX2: quant/formats/trellis.h, quant/formats/iq1_kt.h to
// quant/formats/iq4_kt.h. Included inside the target region of matmul.cpp, after
// unpack_shifted.inl. Numbers are computed from indices where they are used: a product gives eight
// states, two sums of pairs add the fields of each.

// Eight indices, from 8 * k on.
[[gnu::always_inline]] inline __m256i EightIndices(const quant::IQ1_KT::Block& block, int k) {
  const __m256i low = _mm256_cvtepu8_epi32(LoadBytes8(block.low + 8 * k));
  const __m256i middle = _mm256_and_si256(
      _mm256_srli_epi32(_mm256_cvtepu8_epi32(LoadBytes8(block.middle + k % 2 * 8)), k / 2 * 4),
      _mm256_set1_epi32(15));
  const int a = block.scales[2 * k];
  const int b = block.scales[2 * k + 1];
  const __m256i scales = _mm256_setr_epi32(a, a, a, a, b, b, b, b);
  const __m256i high =
      _mm256_and_si256(_mm256_sllv_epi32(scales, _mm256_setr_epi32(8, 7, 6, 5, 8, 7, 6, 5)),
                       _mm256_set1_epi32(1 << 12));
  return _mm256_or_si256(_mm256_or_si256(low, _mm256_slli_epi32(middle, 8)), high);
}
template <class Block>
  requires requires(const Block& block) { block.indices; }
[[gnu::always_inline]] inline __m256i EightIndices(const Block& block, int k) {
  return _mm256_cvtepu16_epi32(LoadBytes16(block.indices + 8 * k));
}
[[gnu::always_inline]] inline __m256i EightIndices(const quant::IQ4_KT::Block& block, int k) {
  const __m256i low = _mm256_cvtepu8_epi32(LoadBytes8(block.low + 8 * k));
  const __m256i middle = _mm256_and_si256(
      _mm256_srli_epi32(_mm256_cvtepu8_epi32(LoadBytes8(block.middle + k % 4 * 8)), k / 4 * 4),
      _mm256_set1_epi32(15));
  const __m256i word = _mm256_set1_epi32(static_cast<int>(block.words[k].value()));
  const __m256i three =
      _mm256_and_si256(_mm256_srlv_epi32(word, _mm256_setr_epi32(8, 11, 14, 17, 20, 23, 26, 29)),
                       _mm256_set1_epi32(7));
  const __m256i high = _mm256_or_si256(_mm256_slli_epi32(three, 12), _mm256_slli_epi32(word, 15));
  return _mm256_or_si256(_mm256_or_si256(low, _mm256_slli_epi32(middle, 8)),
                         _mm256_and_si256(high, _mm256_set1_epi32(0xf000)));
}

template <class Format>
struct UnpackTrellis {
  using Codes = SignedCodes<false>;
  static constexpr int64_t kBytes = sizeof(typename Format::Block);
  static constexpr int kScaleValues = 16;
  static constexpr bool kHasRowFactor = true;
  static constexpr bool kMagnitudes = requires(const typename Format::Block& b) { b.signs; };
  static constexpr int kPoint = Format::kPoint;

  // Eight numbers, or magnitudes: four of each half of 32 values from point `first` of `states` on,
  // those of dword 4 * half + kDword. Packing then puts the halves' dwords side by side.
  template <int kDword>
  [[gnu::always_inline]] static __m256i Numbers(__m256i states, int first) {
    constexpr int kHalf = kPoint == 8 ? kDword % 2 * 4 : 0;
    const auto power = [](int k) { return static_cast<int>(quant::kTrellisPowers[k]); };
    const __m256i powers = _mm256_broadcastsi128_si256(
        _mm_setr_epi32(power(kHalf), power(kHalf + 1), power(kHalf + 2), power(kHalf + 3)));
    constexpr int a = kPoint == 8 ? kDword / 2 : kDword;
    constexpr int b = a + 16 / kPoint;
    const __m256i points =
        _mm256_add_epi32(_mm256_setr_epi32(a, a, a, a, b, b, b, b), _mm256_set1_epi32(first));
    const __m256i product = _mm256_mullo_epi32(_mm256_permutevar8x32_epi32(states, points), powers);
    const __m256i fields = _mm256_and_si256(product, _mm256_set1_epi8(0x3f));
    const __m256i numbers = _mm256_sub_epi32(
        AddPairs(_mm256_maddubs_epi16(fields, _mm256_set1_epi8(1))), _mm256_set1_epi32(126));
    return kMagnitudes ? _mm256_abs_epi32(numbers) : numbers;
  }

  // Values [32 * k, 32 * k + 32).
  [[gnu::always_inline]] static __m256i Codes32(const typename Format::Block& block, int k) {
    const __m256i states =
        _mm256_add_epi32(EightIndices(block, kPoint == 8 ? k / 2 : k),
                         _mm256_set1_epi32(static_cast<int>(quant::kTrellisStart)));
    const int first = kPoint == 8 ? k % 2 * 4 : 0;
    const __m256i low = _mm256_packs_epi32(Numbers<0>(states, first), Numbers<1>(states, first));
    const __m256i high = _mm256_packs_epi32(Numbers<2>(states, first), Numbers<3>(states, first));
    const __m256i bytes = _mm256_packs_epi16(low, high);
    if constexpr (kMagnitudes) {
      const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << k));
      const __m256i negative =
          _mm256_cmpeq_epi8(_mm256_and_si256(LoadBytes32(block.signs), bit), bit);
      return _mm256_sub_epi8(_mm256_xor_si256(bytes, negative), negative);
    } else {
      return bytes;
    }
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const typename Format::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      TransposeCodes(StoreSigned(Codes32(block, 4 * h)), StoreSigned(Codes32(block, 4 * h + 1)),
                     StoreSigned(Codes32(block, 4 * h + 2)), StoreSigned(Codes32(block, 4 * h + 3)),
                     out.codes + 4 * h);
    }
    ScaleLanes(block, out.scales);
    return out;
  }
};

// The byte of each value of half h of a block, and the power that brings the value's digit to the
// top.
struct TernaryPlaces {
  alignas(32) uint8_t bytes[2][32] = {};
  alignas(32) uint16_t powers[2][2][16] = {};  // as unpacking bytes to words orders them
  constexpr TernaryPlaces() {
    constexpr uint16_t kPowers[] = {81, 27, 9, 3, 1};
    for (int i = 0; i < 64; ++i) {
      bytes[i / 32][i % 32] = static_cast<uint8_t>(quant::IQ1_BN::Byte(i));
      powers[i / 32][i % 16 / 8][i % 32 / 16 * 8 + i % 8] = kPowers[quant::IQ1_BN::Digit(i)];
    }
  }
};
constexpr TernaryPlaces kTernaryPlaces;

// Four blocks of IQ1_BN, quant/formats/iq1_bn.h.
struct UnpackIQ1_BN {
  using Codes = CodeTraits<1, 2, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::IQ1_BN::Block);
  static constexpr int kScaleValues = 32;
  static constexpr bool kHasRowFactor = true;

  // A byte in the upper half of a word, times a power of 3, loses its first digits; the upper half
  // of the product with 3 is then the next one.
  [[gnu::always_inline]] static __m256i Digits(__m256i block, int h) {
    const __m256i bytes = _mm256_shuffle_epi8(block, LoadBytes32(kTernaryPlaces.bytes[h]));
    const __m256i zero = _mm256_setzero_si256();
    const __m256i three = _mm256_set1_epi16(3);
    const __m256i low = _mm256_mullo_epi16(_mm256_unpacklo_epi8(zero, bytes),
                                           LoadBytes32(kTernaryPlaces.powers[h][0]));
    const __m256i high = _mm256_mullo_epi16(_mm256_unpackhi_epi8(zero, bytes),
                                            LoadBytes32(kTernaryPlaces.powers[h][1]));
    return _mm256_packus_epi16(_mm256_mulhi_epu16(low, three), _mm256_mulhi_epu16(high, three));
  }

  // Without a byte from behind the block.
  [[gnu::always_inline]] static __m256i LoadBlock(const quant::IQ1_BN::Block& block) {
    const __m128i first = LoadBytes8(block.digits);
    const __m128i last = LoadBytes8(block.digits + sizeof(block) - 8);
    return _mm256_broadcastsi128_si256(_mm_unpacklo_epi64(first, _mm_srli_epi64(last, 24)));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::IQ1_BN::Block*>(bytes);
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const __m256i first = LoadBlock(blocks[2 * h]);
      const __m256i second = LoadBlock(blocks[2 * h + 1]);
      TransposeCodes(Digits(first, 0), Digits(first, 1), Digits(second, 0), Digits(second, 1),
                     out.codes + 4 * h);
      out.scales[h] = _mm256_set1_ps(1.0f);
    }
    return out;
  }
};
