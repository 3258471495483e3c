// MXFP4 for AVX-512 VBMI: quant/formats/mxfp4.h. Included inside the target region of matmul.cpp,
// after cpu/avx512vnni/unpack_e2m1.inl.

// Bytes of two vectors, 64 bytes apart: those that hold the first eight codes, and those sixteen
// codes on, of each of eight blocks; and in 32-bit lanes each block's exponent, twice.
struct BytesOfMXFP4 {
  static constexpr int kStride = sizeof(quant::MXFP4::Block);
  alignas(64) uint8_t codes[64] = {};
  alignas(64) uint8_t exponents[64] = {};
  constexpr BytesOfMXFP4() {
    for (int i = 0; i < 64; ++i) {
      codes[i] = static_cast<uint8_t>(i / 8 * kStride + 1 + i % 8);
      exponents[i] = static_cast<uint8_t>(i / 8 * kStride);
    }
  }
};
constexpr BytesOfMXFP4 kBytesOfMXFP4;

struct UnpackBytesMXFP4 : UnpackMXFP4 {
  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    static_assert(kBytes == 128 + 8);
    const auto at = [&](int byte) __attribute__((always_inline)) {
      return _mm512_loadu_si512(bytes + byte);
    };
    const __m512i codes = _mm512_load_si512(kBytesOfMXFP4.codes);
    const __m512i head = at(0);
    const __m512i tail = at(64);
    WeightBlock out;
    LookUpE2M1(_mm512_permutex2var_epi8(head, codes, tail),
               _mm512_permutex2var_epi8(at(8), codes, at(72)), out);
    constexpr __mmask64 kLowestOfLanes = 0x1111111111111111;
    out.scales = ScalesOfExponents(_mm512_maskz_permutex2var_epi8(
        kLowestOfLanes, head, _mm512_load_si512(kBytesOfMXFP4.exponents), tail));
    return out;
  }
};
