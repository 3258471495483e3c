// Unpacks 256 values of any quantized format through its scalar description.

template <bool kOffsets>
struct UnpackGeneric {
  using Codes = CodeTraits<16, kOffsets>;
  static constexpr int64_t kBytes = 0;

  static WeightBlock Unpack(const std::byte* bytes, const quant::FormatTraits& traits) {
    const IntegerCodes block(bytes, traits);
    WeightBlock out;
    for (int i = 0; i < 16; ++i) out.codes[i] = vld1q_s8(block.codes + 16 * i);
    for (int v = 0; v < 4; ++v) {
      out.scales[v] = vld1q_f32(block.scales + 4 * v);
      out.offsets[v] = vld1q_f32(block.offsets + 4 * v);
    }
    return out;
  }
};
