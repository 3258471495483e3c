// Peak loops in NEON with dot products.
#include "cpu/neon/peaks.h"

#if defined(__aarch64__)

#include "cpu/intrinsics.h"

#include "cpu/neon/begin.inl"

namespace kvant::cpu::neon {
namespace {

#include "cpu/generic/peaks.inl"

struct Words {
  uint64x2_t a, b, c, d;

  void Take(const std::byte* piece) {
    const auto* source = reinterpret_cast<const uint64_t*>(piece);
    for (int i = 0; i < 32; i += 8) {
      a = veorq_u64(a, vld1q_u64(source + i));
      b = veorq_u64(b, vld1q_u64(source + i + 2));
      c = veorq_u64(c, vld1q_u64(source + i + 4));
      d = veorq_u64(d, vld1q_u64(source + i + 6));
    }
  }
};

uint64_t Read(const std::byte* data, size_t bytes) {
  const uint64x2_t zero = vdupq_n_u64(0);
  Words words{zero, zero, zero, zero};
  TakeStreams(data, bytes, words);
  const uint64x2_t all = veorq_u64(veorq_u64(words.a, words.b), veorq_u64(words.c, words.d));
  return vgetq_lane_u64(all, 0) ^ vgetq_lane_u64(all, 1);
}

struct IntegerSums {
  using Vector = int32x4_t;
  static Vector Zero() { return vdupq_n_s32(0); }
  static int64_t Sum(Vector sum) { return vaddlvq_s32(sum); }
};

struct Int8 : IntegerSums {
  static Vector One() { return vreinterpretq_s32_s8(vdupq_n_s8(1)); }
  static void Step(Vector& sum, Vector& one) {
    const int8x16_t ones = vreinterpretq_s8_s32(one);
    sum = vdotq_s32(sum, ones, ones);
  }
};

struct Int16 : IntegerSums {
  static Vector One() { return vreinterpretq_s32_s16(vdupq_n_s16(1)); }
  static void Step(Vector& sum, Vector& one) {
    const int16x4_t ones = vget_low_s16(vreinterpretq_s16_s32(one));
    sum = vmlal_s16(sum, ones, ones);
  }
};

struct Float32 {
  using Vector = float32x4_t;
  static Vector Zero() { return vdupq_n_f32(0.0f); }
  static Vector One() { return vdupq_n_f32(1.0f); }
  static void Step(Vector& sum, Vector& one) { sum = vfmaq_f32(sum, one, one); }
  static int64_t Sum(Vector sum) { return vaddlvq_s32(vcvtq_s32_f32(sum)); }
};

}  // namespace
}  // namespace kvant::cpu::neon

#include "cpu/neon/end.inl"

namespace kvant::cpu::neon {

const PeakLoops* Peaks() {
  static constexpr PeakLoops kPeaks = {
      .read = Read,
      .int8 = {"sdot v.4s", kAccumulators * 16, Accumulate<Int8>},
      .int16 = {"smlal v.4s", kAccumulators * 4, Accumulate<Int16>},
      .float32 = {"fmla v.4s", kAccumulators * 4, Accumulate<Float32>},
  };
  return &kPeaks;
}

}  // namespace kvant::cpu::neon

#else

namespace kvant::cpu::neon {
const PeakLoops* Peaks() { return nullptr; }
}  // namespace kvant::cpu::neon

#endif
