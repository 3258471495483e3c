// The steps that the unpackers of this folder share. Included inside the target region of
// matmul.cpp.

inline int8x16_t LowNibbles(uint8x16_t bytes) {
  return vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(0x0f)));
}
inline int8x16_t HighNibbles(uint8x16_t bytes) { return vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4)); }

// Every byte's bits of `mask` from `bits`, the others from `codes`.
inline int8x16_t Insert(int8x16_t codes, uint8x16_t bits, uint8_t mask) {
  return vreinterpretq_s8_u8(vbslq_u8(vdupq_n_u8(mask), bits, vreinterpretq_u8_s8(codes)));
}

// Every byte shifted to the left by kBits, to the right where it is negative.
template <int kBits>
[[gnu::always_inline]] inline uint8x16_t Shift(uint8x16_t bytes) {
  if constexpr (kBits > 0) return vshlq_n_u8(bytes, kBits);
  if constexpr (kBits < 0) return vshrq_n_u8(bytes, -kBits);
  return bytes;
}

// All bits of lane i where bit i % 8 of byte `first` + i / 8 of `bytes` is set.
[[gnu::always_inline]] inline uint8x16_t MaskOfBits(uint8x16_t bytes, int first) {
  const uint8x16_t spread = vcombine_u8(vdup_n_u8(0), vdup_n_u8(1));
  const uint8x16_t from = vaddq_u8(spread, vdupq_n_u8(static_cast<uint8_t>(first)));
  const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  return vtstq_u8(vqtbl1q_u8(bytes, from), bits);
}

inline const uint16_t* HalfAt(const std::byte* p) { return reinterpret_cast<const uint16_t*>(p); }

// The halves that begin four blocks of kStride bytes.
template <int kStride>
[[gnu::always_inline]] inline float32x4_t LoadHalves(const std::byte* blocks) {
  uint16x4_t halves = vld1_dup_u16(HalfAt(blocks));
  halves = vld1_lane_u16(HalfAt(blocks + kStride), halves, 1);
  halves = vld1_lane_u16(HalfAt(blocks + 2 * kStride), halves, 2);
  halves = vld1_lane_u16(HalfAt(blocks + 3 * kStride), halves, 3);
  return vcvt_f32_f16(vreinterpret_f16_u16(halves));
}

[[gnu::always_inline]] inline float32x4_t BroadcastHalf(quant::PackedHalf half) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half.bits())));
}

// Eight small integers times a factor.
[[gnu::always_inline]] inline void ScaleEight(int16x8_t integers, float32x4_t factor,
                                              float32x4_t* out) {
  out[0] = vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(integers))), factor);
  out[1] = vmulq_f32(vcvtq_f32_s32(vmovl_high_s16(integers)), factor);
}

// Sixteen signed bytes times a factor.
[[gnu::always_inline]] inline void ScaleSixteen(int8x16_t integers, float32x4_t factor,
                                                float32x4_t* out) {
  ScaleEight(vmovl_s8(vget_low_s8(integers)), factor, out);
  ScaleEight(vmovl_high_s8(integers), factor, out + 2);
}
