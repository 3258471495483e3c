// Formats of small blocks, or of whole bytes, that are not llama.cpp's oldest, for NEON:
// quant/formats/q6_0.h, quant/formats/q8_kv.h, quant/formats/iq1_bn.h, quant/formats/iq2_bn.h,
// quant/formats/q1_0.h, quant/formats/q2_0.h. Included inside the target region of matmul.cpp,
// after unpack_pieces.inl.

// Eight blocks of Q6_0.
struct UnpackQ6_0 {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = 8 * sizeof(quant::Q6_0::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q6_0::Block);
    const auto* blocks = reinterpret_cast<const quant::Q6_0::Block*>(bytes);
    const int8x16_t middle = vdupq_n_s8(32);
    WeightBlock out;
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      const uint8x16_t low = vld1q_u8(blocks[b].low);
      const uint8x8_t bits = vld1_u8(blocks[b].high);
      const uint8x16_t high = vcombine_u8(bits, vshr_n_u8(bits, 4));
      out.codes[2 * b] = vsubq_s8(Insert(LowNibbles(low), Shift<4>(high), 0x30), middle);
      out.codes[2 * b + 1] = vsubq_s8(Insert(HighNibbles(low), Shift<2>(high), 0x30), middle);
    }
    for (int v = 0; v < 2; ++v) out.scales[v] = LoadHalves<kStride>(bytes + 4 * v * kStride);
    return out;
  }
};

// 256 bytes of Q8_KV.
struct UnpackQ8_KV {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = 256;
  static constexpr bool kHasRowFactor = true;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* codes = reinterpret_cast<const int8_t*>(bytes);
    WeightBlock out;
    for (int i = 0; i < 16; ++i) out.codes[i] = vld1q_s8(codes + 16 * i);
    for (int v = 0; v < 2; ++v) out.scales[v] = vdupq_n_f32(1.0f);
    return out;
  }
};

// Four blocks of IQ2_BN.
struct UnpackIQ2_BN {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::IQ2_BN::Block);
  static constexpr bool kHasRowFactor = true;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* codes = reinterpret_cast<const uint8_t*>(bytes);
    WeightBlock out;
    const auto less_one = [](uint8x16_t fields) __attribute__((always_inline)) {
      const uint8x16_t two_bits = vandq_u8(fields, vdupq_n_u8(3));
      return vsubq_s8(vreinterpretq_s8_u8(two_bits), vdupq_n_s8(1));
    };
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
      const uint8x16_t run = vld1q_u8(codes + 16 * b);
      out.codes[4 * b] = less_one(run);
      out.codes[4 * b + 1] = less_one(Shift<-2>(run));
      out.codes[4 * b + 2] = less_one(Shift<-4>(run));
      out.codes[4 * b + 3] = less_one(Shift<-6>(run));
    }
    for (int v = 0; v < 2; ++v) out.scales[v] = vdupq_n_f32(1.0f);
    return out;
  }
};

// The byte of each of the 64 values of a block of IQ1_BN, and the power of 3 that the byte is
// multiplied by.
struct TernaryPlaces {
  alignas(16) uint8_t bytes[64] = {};
  alignas(16) uint8_t powers[64] = {};
  constexpr TernaryPlaces() {
    constexpr uint8_t kPowers[] = {81, 27, 9, 3, 1};
    for (int i = 0; i < 64; ++i) {
      bytes[i] = static_cast<uint8_t>(quant::IQ1_BN::Byte(i));
      powers[i] = kPowers[quant::IQ1_BN::Digit(i)];
    }
  }
};
constexpr TernaryPlaces kTernaryPlaces;

// Four blocks of IQ1_BN.
struct UnpackIQ1_BN {
  using Codes = CodeTraits<32, false>;
  static constexpr int kStride = sizeof(quant::IQ1_BN::Block);
  static constexpr int64_t kBytes = 4 * kStride;
  static constexpr bool kHasRowFactor = true;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* digits = reinterpret_cast<const uint8_t*>(bytes);
    WeightBlock out;
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
      // The last block's bytes end a vector, so that nothing behind them is read.
      const int early = b == 3 ? 16 - kStride : 0;
      const uint8x16_t block = vld1q_u8(digits + b * kStride - early);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const uint8x16_t from = vaddq_u8(vld1q_u8(kTernaryPlaces.bytes + 16 * i),
                                         vdupq_n_u8(static_cast<uint8_t>(early)));
        const uint8x16_t rest =
            vmulq_u8(vqtbl1q_u8(block, from), vld1q_u8(kTernaryPlaces.powers + 16 * i));
        // (rest + rest / 2) / 128
        const uint8x16_t digit = vshrq_n_u8(vhaddq_u8(rest, vshrq_n_u8(rest, 1)), 6);
        out.codes[4 * b + i] = vsubq_s8(vreinterpretq_s8_u8(digit), vdupq_n_s8(1));
      }
    }
    for (int v = 0; v < 2; ++v) out.scales[v] = vdupq_n_f32(1.0f);
    return out;
  }
};

// Two blocks of Q1_0.
struct UnpackQ1_0 {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = 2 * sizeof(quant::Q1_0::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const auto* blocks = reinterpret_cast<const quant::Q1_0::Block*>(bytes);
    WeightBlock out;
#pragma GCC unroll 2
    for (int b = 0; b < 2; ++b) {
      const uint8x16_t signs = vld1q_u8(blocks[b].signs);
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
        const int8x16_t plus = vreinterpretq_s8_u8(MaskOfBits(signs, 2 * g));
        out.codes[8 * b + g] = vsubq_s8(vandq_s8(plus, vdupq_n_s8(2)), vdupq_n_s8(1));
      }
      out.scales[b] = BroadcastHalf(blocks[b].d);
    }
    return out;
  }
};

// Four blocks of Q2_0.
struct UnpackQ2_0 {
  using Codes = CodeTraits<32, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::Q2_0::Block);

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    constexpr int kStride = sizeof(quant::Q2_0::Block);
    const auto* blocks = reinterpret_cast<const quant::Q2_0::Block*>(bytes);
    const uint8x16_t places = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    const int8x16_t shifts = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
    WeightBlock out;
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
      const uint8x16_t bytes16 = vld1q_u8(blocks[b].codes);
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {
        const uint8x16_t from = vaddq_u8(places, vdupq_n_u8(static_cast<uint8_t>(4 * g)));
        const uint8x16_t fields = vshlq_u8(vqtbl1q_u8(bytes16, from), shifts);
        out.codes[4 * b + g] =
            vsubq_s8(vreinterpretq_s8_u8(vandq_u8(fields, vdupq_n_u8(3))), vdupq_n_s8(1));
      }
    }
    // Two scales of 32 values for each block.
    const float32x4_t scales = LoadHalves<kStride>(bytes);
    out.scales[0] = vzip1q_f32(scales, scales);
    out.scales[1] = vzip2q_f32(scales, scales);
    return out;
  }
};
