// Formats whose 4-bit codes are floats of 2 exponent bits and 1 mantissa bit, for AVX-512:
// quant/formats/mxfp4.h, quant/formats/nvfp4.h. Included inside the target region of matmul.cpp,
// after the folder's look_up.inl.

// Levels + 16, four times.
struct E2M1Bytes {
  static constexpr int kBias = 16;
  alignas(64) uint8_t bytes[64] = {};
  constexpr E2M1Bytes() {
    for (int i = 0; i < 64; ++i) {
      bytes[i] = static_cast<uint8_t>(quant::kE2M1Levels[i % 16] + kBias);
    }
  }
};
constexpr E2M1Bytes kE2M1Bytes;

// From vectors whose bytes hold the codes of vectors 0 and 2, and of vectors 1 and 3.
[[gnu::always_inline]] inline void LookUpE2M1(__m512i first, __m512i second, WeightBlock& out) {
  out.codes0 = LookUp64<16>(kE2M1Bytes.bytes, first);
  out.codes1 = LookUp64<16>(kE2M1Bytes.bytes, second);
  out.codes2 = LookUp64<16>(kE2M1Bytes.bytes, _mm512_srli_epi16(first, 4));
  out.codes3 = LookUp64<16>(kE2M1Bytes.bytes, _mm512_srli_epi16(second, 4));
}

// Blocks begin at even and at odd bytes in turn, so words of 16 bits are counted from some byte on:
// those of the codes of blocks 0, 2, 4 and 6 from byte 1, of the others from byte 8. From byte 0:
// the words that hold each block's exponent, in its lower or upper half, twice.
struct PlacesOfMXFP4 {
  static constexpr int kStride = sizeof(quant::MXFP4::Block);
  alignas(64) uint16_t even[32] = {};
  alignas(64) uint16_t odd[32] = {};
  alignas(64) uint16_t exponents[32] = {};
  constexpr PlacesOfMXFP4() {
    for (int i = 0; i < 32; ++i) {
      even[i] = static_cast<uint16_t>(i / 8 * kStride + i % 8);
      odd[i] = static_cast<uint16_t>(i / 8 * kStride + (kStride + 1 - 8) / 2 + i % 8);
      exponents[i] = static_cast<uint16_t>(i / 4 * kStride / 2);
    }
  }
};
constexpr PlacesOfMXFP4 kPlacesOfMXFP4;

// Eight blocks of MXFP4.
struct UnpackMXFP4 {
  using Rows = RowsOfMXFP4;
  using Codes = CodeTraits<E2M1Bytes::kBias, false, LaneOrder::kPairs>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::MXFP4::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    static_assert(kBytes == 128 + 8);
    const auto at = [&](int byte) __attribute__((always_inline)) {
      return _mm512_loadu_si512(bytes + byte);
    };
    const __m512i even =
        _mm512_permutex2var_epi16(at(1), _mm512_load_si512(kPlacesOfMXFP4.even), at(65));
    const __m512i odd =
        _mm512_permutex2var_epi16(at(8), _mm512_load_si512(kPlacesOfMXFP4.odd), at(72));
    WeightBlock out;
    LookUpE2M1(_mm512_unpacklo_epi64(even, odd), _mm512_unpackhi_epi64(even, odd), out);
    const __m512i words =
        _mm512_permutex2var_epi16(at(0), _mm512_load_si512(kPlacesOfMXFP4.exponents), at(64));
    const __m512i shift = _mm512_setr_epi32(0, 0, 8, 8, 0, 0, 8, 8, 0, 0, 8, 8, 0, 0, 8, 8);
    out.scales = ScalesOfExponents(
        _mm512_and_si512(_mm512_srlv_epi32(words, shift), _mm512_set1_epi32(255)));
    return out;
  }
};

// Four blocks of NVFP4.
struct UnpackNVFP4 {
  using Codes = CodeTraits<E2M1Bytes::kBias, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::NVFP4::Block);
  static constexpr int kScaleValues = 16;

  // quant::HalfOfUe4M3 of sixteen bytes: 2^119 brings the exponent's bias from 7 to that of a
  // float.
  [[gnu::always_inline]] static __m512 Scales(__m128i bytes) {
    const __m128i nan = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f));
    const __m128i magnitudes = _mm_andnot_si128(nan, _mm_and_si128(bytes, _mm_set1_epi8(0x7f)));
    const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(magnitudes), 20);
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p119f));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::NVFP4::Block*>(bytes);
    const __m512i low = Join(LoadBytes32(blocks[0].codes), LoadBytes32(blocks[1].codes));
    const __m512i high = Join(LoadBytes32(blocks[2].codes), LoadBytes32(blocks[3].codes));
    // Lane 4q + v: the eight bytes of group q of block v.
    const __m512i first =
        _mm512_setr_epi32(0, 8, 16, 24, 2, 10, 18, 26, 4, 12, 20, 28, 6, 14, 22, 30);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(1));
    WeightBlock out;
    LookUpE2M1(_mm512_permutex2var_epi32(low, first, high),
               _mm512_permutex2var_epi32(low, second, high), out);
    int scales[4];
    for (int b = 0; b < 4; ++b) std::memcpy(&scales[b], blocks[b].scales, sizeof(int));
    out.scales =
        Scales(BytesInLaneOrder(_mm_setr_epi32(scales[0], scales[1], scales[2], scales[3])));
    return out;
  }
};
