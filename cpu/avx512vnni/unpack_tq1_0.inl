// TQ1_0 for AVX-512: quant/formats/tq1_0.h. Included inside the target region of matmul.cpp.

struct UnpackTQ1_0 {
  using Codes = CodeTraits<1, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = sizeof(quant::TQ1_0::Block);
  static constexpr int kScaleValues = 32;

  // Digits of eight bytes at a time. A byte in the upper half of a 16-bit word, times 3^n, loses
  // the first n digits; the upper half of its product with 3 is then the next one.
  [[gnu::always_inline]] static __m512i Digits(__m512i bytes, __m512i low_powers,
                                               __m512i high_powers) {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i three = _mm512_set1_epi16(3);
    const __m512i low = _mm512_mullo_epi16(_mm512_unpacklo_epi8(zero, bytes), low_powers);
    const __m512i high = _mm512_mullo_epi16(_mm512_unpackhi_epi8(zero, bytes), high_powers);
    return _mm512_packus_epi16(_mm512_mulhi_epu16(low, three), _mm512_mulhi_epu16(high, three));
  }

  // Vector s of the block. Word p < 5 of it is digit p of bytes 8s to 8s + 7, words 5, 6 and half
  // of 7 digits s / 2, 2 + s / 2 and 4 of the later sixteen bytes, the rest digits of the last
  // four.
  template <int kVector>
  [[gnu::always_inline]] static __m512i Vector(__m512i all) {
    constexpr int s = kVector;
    constexpr int m = 8 + s % 2 * 2;  // 32-bit piece of the sixteen bytes
    constexpr bool kLast = s >= 2;
    const __m512i pieces =
        _mm512_setr_epi32(2 * s, 2 * s + 1, 2 * s, 2 * s + 1, 2 * s, 2 * s + 1, 2 * s, 2 * s + 1,
                          2 * s, 2 * s + 1, m, m + 1, m, m + 1, kLast ? 12 : m, kLast ? 12 : m + 1);
    // Powers of 3 for words 0, 2, 4, 6 (`low`) and for words 1, 3, 5, 7 (`high`): four 16-bit
    // products in each half of a word.
    constexpr int64_t kEach = 0x0001000100010001;
    constexpr int64_t kPowers[] = {1, 3, 9, 27, 81};
    constexpr int64_t k5 = kEach * kPowers[s / 2];
    constexpr int64_t k6 = kEach * kPowers[2 + s / 2];
    constexpr int64_t kFirst = kEach * (kLast ? kPowers[2 * (s % 2)] : 81);
    constexpr int64_t kSecond = kEach * (kLast ? kPowers[2 * (s % 2) + 1] : 81);
    const __m512i low =
        _mm512_setr_epi64(kEach, kEach, kEach * 9, kEach * 9, kEach * 81, kEach * 81, k6, k6);
    const __m512i high =
        _mm512_setr_epi64(kEach * 3, kEach * 3, kEach * 27, kEach * 27, k5, k5, kFirst, kSecond);
    return Digits(_mm512_permutexvar_epi32(pieces, all), low, high);
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto& block = *reinterpret_cast<const quant::TQ1_0::Block*>(bytes);
    const __m512i all =
        _mm512_maskz_loadu_epi8((uint64_t{1} << sizeof(block.digits)) - 1, block.digits);
    WeightBlock out;
    out.codes0 = Vector<0>(all);
    out.codes1 = Vector<1>(all);
    out.codes2 = Vector<2>(all);
    out.codes3 = Vector<3>(all);
    out.scales = BroadcastHalf(block.d);
    return out;
  }
};
