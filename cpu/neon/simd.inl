// The SIMD vocabulary of cpu/generic/*.inl in NEON with dot products: four floats per vector.
//
// Included inside namespace kvant::cpu::neon, between begin.inl and end.inl, after cpu/intrinsics.h
// and <cstdint>. The folders of other instruction sets define the same names, and every operation
// rounds in the same way there, so that generic code gives the same bits everywhere. "Partial"
// forms touch only the first `count` (0 <= count <= kLanes) elements of memory; lanes that are not
// loaded are zero.

inline constexpr int kLanes = 4;
inline constexpr int kRegisters = 32;

using F32 = float32x4_t;  // [kLanes] float

inline F32 Zero() { return vdupq_n_f32(0.0f); }
inline F32 Broadcast(float value) { return vdupq_n_f32(value); }
inline float FirstLane(F32 v) { return vgetq_lane_f32(v, 0); }

inline F32 Load(const float* source) { return vld1q_f32(source); }
inline void Store(float* target, F32 v) { vst1q_f32(target, v); }
inline F32 LoadPartial(const float* source, int64_t count) {
  if (count == kLanes) return Load(source);
  float values[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) values[i] = source[i];
  return Load(values);
}
inline void StorePartial(float* target, F32 v, int64_t count) {
  if (count == kLanes) return Store(target, v);
  float values[kLanes];
  Store(values, v);
  for (int64_t i = 0; i < count; ++i) target[i] = values[i];
}

// F16 in memory, float in registers; stores round to nearest even.
inline F32 LoadF16(const uint16_t* source) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(source)));
}
inline F32 LoadF16Partial(const uint16_t* source, int64_t count) {
  uint16_t halves[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) halves[i] = source[i];
  return LoadF16(halves);
}
inline void StoreF16(uint16_t* target, F32 v) {
  vst1_u16(target, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}
inline void StoreF16Partial(uint16_t* target, F32 v, int64_t count) {
  uint16_t halves[kLanes];
  StoreF16(halves, v);
  for (int64_t i = 0; i < count; ++i) target[i] = halves[i];
}

#include "cpu/neon/transpose.inl"

// The lower half of the lanes, and the upper one.
inline void StoreHalves(float* lower, float* upper, F32 v) {
  vst1_f32(lower, vget_low_f32(v));
  vst1_f32(upper, vget_high_f32(v));
}

inline F32 Add(F32 a, F32 b) { return vaddq_f32(a, b); }
inline F32 Sub(F32 a, F32 b) { return vsubq_f32(a, b); }
inline F32 Mul(F32 a, F32 b) { return vmulq_f32(a, b); }
inline F32 Div(F32 a, F32 b) { return vdivq_f32(a, b); }
// a * b, or 0 where a is 0, whatever b is.
inline F32 MulNonZero(F32 a, F32 b) {
  const uint32x4_t products = vreinterpretq_u32_f32(vmulq_f32(a, b));
  return vreinterpretq_f32_u32(vbicq_u32(products, vceqzq_f32(a)));
}
// a * b + c, a * b - c and c - a * b, rounded once.
inline F32 MulAdd(F32 a, F32 b, F32 c) { return vfmaq_f32(c, a, b); }
inline F32 MulSub(F32 a, F32 b, F32 c) { return vfmaq_f32(vnegq_f32(c), a, b); }
inline F32 NegMulAdd(F32 a, F32 b, F32 c) { return vfmsq_f32(c, a, b); }

// A factor of several products, AddTo(b, c): c += factor * b, rounded once.
struct FactorVector {
  F32 factor;
  explicit FactorVector(const float* source) : factor(Broadcast(*source)) {}
  void AddTo(F32 b, F32& c) const { c = MulAdd(factor, b, c); }
};
template <class Use>
inline void UseFactors(const Use& use) {
  use.template operator()<FactorVector>();
}

// Even lanes a * b - c, odd lanes a * b + c, rounded once.
inline F32 MulSubAdd(F32 a, F32 b, F32 c) {
  const uint32x4_t even_signs = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000u));
  return MulAdd(a, b, vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(c), even_signs)));
}

// The second operand where one of the two is NaN: Max(bound, x) lets NaN in x through. (FMAX gives
// NaN wherever there is one.)
inline F32 Max(F32 a, F32 b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline F32 Min(F32 a, F32 b) { return vbslq_f32(vcltq_f32(a, b), a, b); }

// To the nearest integer, ties to even.
inline F32 Round(F32 v) { return vrndnq_f32(v); }
// 2^n for integral n in [-126, 127].
inline F32 PowerOfTwo(int32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}
// v * 2^n for integral n in [-160, 160], rounded once: the first of the two products is exact for v
// near one.
inline F32 ScaleByPowerOfTwo(F32 v, F32 n) {
  const int32x4_t whole = vcvtnq_s32_f32(n);
  const int32x4_t half = vshrq_n_s32(whole, 1);
  return Mul(Mul(v, PowerOfTwo(half)), PowerOfTwo(vsubq_s32(whole, half)));
}
// v * 2^n for v near one and integral n <= 0; 0 where n < -125, NaN where n is NaN.
inline F32 ScaleUnlessTiny(F32 v, F32 n) {
  const int32x4_t exponents = vshlq_n_s32(vcvtnq_s32_f32(n), 23);
  const int32x4_t scaled = vaddq_s32(vreinterpretq_s32_f32(v), exponents);
  const uint32x4_t tiny = vcltq_f32(n, vdupq_n_f32(-125.0f));
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_s32(scaled), tiny));
}

// The sum of all lanes by halves: i + (i + 2), then 0 + 1.
inline float SumByHalves(F32 v) {
  const float32x2_t two = vadd_f32(vget_low_f32(v), vget_high_f32(v));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

// The largest lane of a vector without NaN.
inline float LargestLane(F32 v) { return vmaxvq_f32(v); }

// Lane i gets what lane i ^ kDistance has, a power of two below kLanes.
template <int kDistance>
inline F32 SwapLanes(F32 v) {
  if constexpr (kDistance == 2) return vextq_f32(v, v, 2);
  if constexpr (kDistance == 1) return vrev64q_f32(v);
}
// [p0, p0, p1, p1, ...] from the first pairs (0 <= pairs <= kLanes / 2) floats at source.
inline F32 LoadDuplicated(const float* source, int64_t pairs) {
  const F32 values = LoadPartial(source, pairs);
  return vzip1q_f32(values, values);
}

using I32 = int32x4_t;  // [kLanes] int32

inline I32 ZeroInts() { return vdupq_n_s32(0); }
inline I32 LoadInts(const void* source) { return vld1q_s32(static_cast<const int32_t*>(source)); }
inline void StoreInts(void* target, I32 v) { vst1q_s32(static_cast<int32_t*>(target), v); }
inline I32 AddInts(I32 a, I32 b) { return vaddq_s32(a, b); }
inline F32 ToFloat(I32 v) { return vcvtq_f32_s32(v); }

// Products of int8 queries with a q8 key tile: lane i holds the sum for token i. A step takes four
// dimensions of kLanes tokens, [kLanes][4] bytes code + 128, with the query's four codes in
// `query`; the sum of all of the query's codes gives the start, which signed keys do not need.
inline I32 KeyDotStart(int32_t) { return vdupq_n_s32(0); }
inline I32 LoadKeyBytes(const uint8_t* source) {
  return vreinterpretq_s32_u8(veorq_u8(vld1q_u8(source), vdupq_n_u8(0x80)));
}
inline void AddKeyProducts(I32 keys, I32 query, I32& sums) {
  sums = vdotq_s32(sums, vreinterpretq_s8_s32(keys), vreinterpretq_s8_s32(query));
}
inline void AddKeyDots(I32 keys, int32_t query, I32& sums) {
  AddKeyProducts(keys, vdupq_n_s32(query), sums);
}

// Products of int8 queries with q8 values as keys. A step takes kLanes dimensions of four tokens,
// [kLanes][4] codes, with a word of four codes of the query for each four dimensions, four times
// side by side; the sums of a token then lie in every fourth lane.
inline I32 LoadValuesAsKeys(const int8_t* source) {
  constexpr uint8_t kColumns[] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  return vreinterpretq_s32_s8(vqtbl1q_s8(vld1q_s8(source), vld1q_u8(kColumns)));
}
// The sums of four tokens.
inline void StoreTokenSums(I32 sums, int32_t, int32_t* target) { StoreInts(target, sums); }

// Products of weights, 15-bit codes, with q8 values: a lane holds one dimension of four tokens,
// which meet the same four weights in every lane. A sum is the integer dot product, lane by lane.
//
// SDOT multiplies bytes, so a weight is low - 256 * high with two signed ones: high in [-128, 0].
struct FourCodes {
  int8_t parts[8];  // four low ones, four high ones
};
struct Dots {
  I32 low, high;
};

inline I32 Total(const Dots& dots) { return vsubq_s32(dots.low, vshlq_n_s32(dots.high, 8)); }
inline Dots ZeroDots() { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }

using ValueCodes = int8x16_t;  // [kLanes][4]
inline ValueCodes LoadValueCodes(const int8_t* source) { return vld1q_s8(source); }
inline ValueCodes LoadValueCodesPartial(const int8_t* source, int64_t lanes) {
  int8_t codes[4 * kLanes] = {};
  for (int64_t i = 0; i < 4 * lanes; ++i) codes[i] = source[i];
  return LoadValueCodes(codes);
}
inline void AddValueDots(ValueCodes values, const FourCodes& weights, Dots& dots) {
  const int8x8_t both = vld1_s8(weights.parts);
  dots.low = vdotq_lane_s32(dots.low, values, both, 0);
  dots.high = vdotq_lane_s32(dots.high, values, both, 1);
}
// kLanes weight codes, from 0 to 32767 in the lower halves of the lanes, as kLanes / 4 FourCodes.
inline void StoreWeightCodes(F32 codes, FourCodes* target) {
  const int16x4_t words = vmovn_s32(vreinterpretq_s32_f32(codes));
  const int16x4_t low = vshr_n_s16(vshl_n_s16(words, 8), 8);
  const int16x4_t high = vshr_n_s16(vsub_s16(low, words), 8);
  vst1_s8(target->parts, vmovn_s16(vcombine_s16(low, high)));
}
