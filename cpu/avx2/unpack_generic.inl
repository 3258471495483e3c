// Unpacks 256 values of any quantized format through its scalar description.

template <bool kOffsets, int kScale>
struct UnpackGeneric {
  using Codes = SignedCodes<kOffsets>;
  static constexpr int64_t kBytes = 0;
  static constexpr int kScaleValues = kScale;

  static WeightBlock Unpack(const std::byte* bytes, const quant::FormatTraits& traits) {
    const IntegerCodes block(bytes, traits);
    WeightBlock out;
    for (int h = 0; h < 2; ++h) {
      const __m256i* v = reinterpret_cast<const __m256i*>(block.codes) + 4 * h;
      TransposeCodes(StoreSigned(v[0]), StoreSigned(v[1]), StoreSigned(v[2]), StoreSigned(v[3]),
                     out.codes + 4 * h);
      out.scales[h] = PermuteEight(block.scales + 8 * h);
      out.offsets[h] = PermuteEight(block.offsets + 8 * h);
    }
    return out;
  }
};
