// Unpacks 256 values of any quantized format through its scalar description.

template <bool kOffsets, int kScale>
struct UnpackGeneric {
  using Codes = CodeTraits<128, kOffsets>;
  static constexpr int64_t kBytes = 0;
  static constexpr int kScaleValues = kScale;

  static WeightBlock Unpack(const std::byte* bytes, const quant::FormatTraits& traits) {
    const IntegerCodes block(bytes, traits);
    __m512i v[4];
    for (int k = 0; k < 4; ++k) {
      v[k] = _mm512_xor_si512(_mm512_load_si512(block.codes + 64 * k),
                              _mm512_set1_epi8(static_cast<char>(0x80)));
    }
    WeightBlock out;
    TransposeCodes(v[0], v[1], v[2], v[3], out);
    out.scales = _mm512_permutexvar_ps(GroupOfLane(), _mm512_loadu_ps(block.scales));
    out.offsets = _mm512_permutexvar_ps(GroupOfLane(), _mm512_loadu_ps(block.offsets));
    return out;
  }
};
