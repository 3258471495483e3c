// Q8_0 for NEON: quant/formats/q8_0.h. Included inside the target region of matmul.cpp.

struct UnpackQ8_0 {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q8_0::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q8_0::Block);
    const auto* blocks = reinterpret_cast<const quant::Q8_0::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      out.codes[2 * b] = vld1q_s8(blocks[b].codes);
      out.codes[2 * b + 1] = vld1q_s8(blocks[b].codes + 16);
    }
    for (int v = 0; v < 2; ++v) out.scales[v] = LoadHalves<kStride>(bytes + 4 * v * kStride);
    return out;
  }
};
