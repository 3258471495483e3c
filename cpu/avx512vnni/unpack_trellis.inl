// ik_llama.cpp's trellis formats for AVX-512: quant/formats/trellis.h, quant/formats/iq1_kt.h to
// quant/formats/iq4_kt.h. Included inside the target region of matmul.cpp, after
// unpack_shifted.inl. Numbers are computed from indices where they are used: a product gives 16
// states, a dot product the sums of their fields.

// Sixteen indices, from 16 * k on.
[[gnu::always_inline]] inline __m512i SixteenIndices(const quant::IQ1_KT::Block& block, int k) {
  const __m512i low = _mm512_cvtepu8_epi32(LoadBytes16(block.low + 16 * k));
  const __m512i middle =
      _mm512_and_si512(_mm512_srli_epi32(_mm512_cvtepu8_epi32(LoadBytes16(block.middle)), 4 * k),
                       _mm512_set1_epi32(15));
  const __m512i scales = _mm512_cvtepu8_epi32(LoadBytes8(block.scales + 4 * k));
  const __m512i groups = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  const __m512i place = _mm512_setr_epi32(8, 7, 6, 5, 8, 7, 6, 5, 8, 7, 6, 5, 8, 7, 6, 5);
  const __m512i high =
      _mm512_and_si512(_mm512_sllv_epi32(_mm512_permutexvar_epi32(groups, scales), place),
                       _mm512_set1_epi32(1 << 12));
  return _mm512_or_si512(_mm512_or_si512(low, _mm512_slli_epi32(middle, 8)), high);
}
template <class Block>
  requires requires(const Block& block) { block.indices; }
[[gnu::always_inline]] inline __m512i SixteenIndices(const Block& block, int k) {
  return _mm512_cvtepu16_epi32(LoadBytes32(block.indices + 16 * k));
}
[[gnu::always_inline]] inline __m512i SixteenIndices(const quant::IQ4_KT::Block& block, int k) {
  const __m512i low = _mm512_cvtepu8_epi32(LoadBytes16(block.low + 16 * k));
  const __m512i middle = _mm512_and_si512(
      _mm512_srli_epi32(_mm512_cvtepu8_epi32(LoadBytes16(block.middle + k % 2 * 16)), k / 2 * 4),
      _mm512_set1_epi32(15));
  const __m512i groups = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m512i words =
      _mm512_permutexvar_epi32(groups, _mm512_castsi128_si512(LoadBytes8(block.words + 2 * k)));
  const __m512i place =
      _mm512_setr_epi32(8, 11, 14, 17, 20, 23, 26, 29, 8, 11, 14, 17, 20, 23, 26, 29);
  const __m512i three = _mm512_and_si512(_mm512_srlv_epi32(words, place), _mm512_set1_epi32(7));
  const __m512i high = _mm512_or_si512(_mm512_slli_epi32(three, 12), _mm512_slli_epi32(words, 15));
  return _mm512_or_si512(_mm512_or_si512(low, _mm512_slli_epi32(middle, 8)),
                         _mm512_and_si512(high, _mm512_set1_epi32(0xf000)));
}

template <class Format>
struct UnpackTrellis {
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = sizeof(typename Format::Block);
  static constexpr int kScaleValues = 16;
  static constexpr bool kHasRowFactor = true;
  static constexpr bool kMagnitudes = requires(const typename Format::Block& b) { b.signs; };
  static constexpr int kPoint = Format::kPoint;

  // 16 numbers + 128, or magnitudes: four of each quarter of 64 values from `states` on, those with
  // which dword 4 * quarter + kDword begins. Packing then puts the quarters' dwords side by side.
  template <int kDword>
  [[gnu::always_inline]] static __m512i Numbers(__m512i states, int first) {
    constexpr int kHalf = kPoint == 8 ? kDword % 2 * 4 : 0;
    const auto power = [](int k) { return static_cast<int>(quant::kTrellisPowers[k]); };
    const __m512i powers = _mm512_broadcast_i32x4(
        _mm_setr_epi32(power(kHalf), power(kHalf + 1), power(kHalf + 2), power(kHalf + 3)));
    constexpr int a = kPoint == 8 ? kDword / 2 : kDword;
    constexpr int kStep = 16 / kPoint;
    const __m512i points = _mm512_add_epi32(
        _mm512_setr_epi32(a, a, a, a, a + kStep, a + kStep, a + kStep, a + kStep, a + 2 * kStep,
                          a + 2 * kStep, a + 2 * kStep, a + 2 * kStep, a + 3 * kStep, a + 3 * kStep,
                          a + 3 * kStep, a + 3 * kStep),
        _mm512_set1_epi32(first));
    const __m512i product = _mm512_mullo_epi32(_mm512_permutexvar_epi32(points, states), powers);
    const __m512i fields = _mm512_and_si512(product, _mm512_set1_epi8(0x3f));
    const __m512i ones = _mm512_set1_epi8(1);
    if constexpr (kMagnitudes) {
      return _mm512_abs_epi32(_mm512_dpbusd_epi32(_mm512_set1_epi32(-126), fields, ones));
    } else {
      return _mm512_dpbusd_epi32(_mm512_set1_epi32(2), fields, ones);
    }
  }

  // Values [64 * k, 64 * k + 64).
  [[gnu::always_inline]] static __m512i Codes64(const typename Format::Block& block, __m512i states,
                                                int k) {
    const int first = kPoint == 8 ? k % 2 * 8 : 0;
    const __m512i low = _mm512_packus_epi32(Numbers<0>(states, first), Numbers<1>(states, first));
    const __m512i high = _mm512_packus_epi32(Numbers<2>(states, first), Numbers<3>(states, first));
    const __m512i bytes = _mm512_packus_epi16(low, high);
    if constexpr (kMagnitudes) {
      const __m512i signs = _mm512_broadcast_i64x4(LoadBytes32(block.signs));
      const __m512i bit = Join(_mm256_set1_epi8(static_cast<char>(1 << (2 * k))),
                               _mm256_set1_epi8(static_cast<char>(2 << (2 * k))));
      const __m512i middle = _mm512_set1_epi8(static_cast<char>(128));
      return _mm512_mask_sub_epi8(_mm512_add_epi8(middle, bytes), _mm512_test_epi8_mask(signs, bit),
                                  middle, bytes);
    } else {
      return bytes;
    }
  }

  [[gnu::always_inline]] static __m512i States(const typename Format::Block& block, int k) {
    return _mm512_add_epi32(SixteenIndices(block, k),
                            _mm512_set1_epi32(static_cast<int>(quant::kTrellisStart)));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const typename Format::Block*>(bytes);
    __m512i codes[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      codes[k] = Codes64(block, States(block, kPoint == 8 ? k / 2 : k), k);
    }
    WeightBlock out;
    TransposeCodes(codes[0], codes[1], codes[2], codes[3], out);
    out.scales = FloatScales(block, IntegerScales(block));
    return out;
  }
};

// The byte of each value, and what brings its digit to the top.
struct TernaryPlaces {
  alignas(64) uint8_t bytes[64] = {};
  alignas(64) uint16_t powers[2][32] = {};  // as unpacking bytes to words orders them
  constexpr TernaryPlaces() {
    constexpr uint16_t kPowers[] = {81, 27, 9, 3, 1};
    for (int i = 0; i < 64; ++i) {
      bytes[i] = static_cast<uint8_t>(quant::IQ1_BN::Byte(i));
      powers[i % 16 / 8][i / 16 * 8 + i % 8] = kPowers[quant::IQ1_BN::Digit(i)];
    }
  }
};
constexpr TernaryPlaces kTernaryPlaces;

// Four blocks of IQ1_BN, quant/formats/iq1_bn.h.
struct UnpackIQ1_BN {
  using Codes = CodeTraits<1, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::IQ1_BN::Block);
  static constexpr int kScaleValues = 32;
  static constexpr bool kHasRowFactor = true;

  // A byte in the upper half of a word, times a power of 3, loses its first digits; the upper half
  // of the product with 3 is then the next one.
  [[gnu::always_inline]] static __m512i Digits(const uint8_t* digits) {
    constexpr __mmask16 kThirteen = (1 << sizeof(quant::IQ1_BN::Block)) - 1;
    const __m512i block = _mm512_broadcast_i32x4(_mm_maskz_loadu_epi8(kThirteen, digits));
    const __m512i bytes = _mm512_shuffle_epi8(block, _mm512_load_si512(kTernaryPlaces.bytes));
    const __m512i zero = _mm512_setzero_si512();
    const __m512i three = _mm512_set1_epi16(3);
    const __m512i low = _mm512_mullo_epi16(_mm512_unpacklo_epi8(zero, bytes),
                                           _mm512_load_si512(kTernaryPlaces.powers[0]));
    const __m512i high = _mm512_mullo_epi16(_mm512_unpackhi_epi8(zero, bytes),
                                            _mm512_load_si512(kTernaryPlaces.powers[1]));
    return _mm512_packus_epi16(_mm512_mulhi_epu16(low, three), _mm512_mulhi_epu16(high, three));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::IQ1_BN::Block*>(bytes);
    WeightBlock out;
    TransposeCodes(Digits(blocks[0].digits), Digits(blocks[1].digits), Digits(blocks[2].digits),
                   Digits(blocks[3].digits), out);
    out.scales = _mm512_set1_ps(1.0f);
    return out;
  }
};
