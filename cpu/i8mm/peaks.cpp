// Peak loops: products of byte matrices, and the other ones of cpu/neon.
#include "cpu/i8mm/peaks.h"

#if defined(__aarch64__)

#include "cpu/intrinsics.h"
#include "cpu/neon/peaks.h"

#include "cpu/i8mm/begin.inl"

namespace kvant::cpu::i8mm {
namespace {

#include "cpu/generic/peaks.inl"

struct Int8 {
  using Vector = int32x4_t;
  static Vector Zero() { return vdupq_n_s32(0); }
  static Vector One() { return vreinterpretq_s32_s8(vdupq_n_s8(1)); }
  static void Step(Vector& sum, Vector& one) {
    const int8x16_t ones = vreinterpretq_s8_s32(one);
    sum = vmmlaq_s32(sum, ones, ones);
  }
  static int64_t Sum(Vector sum) { return vaddlvq_s32(sum); }
};

}  // namespace
}  // namespace kvant::cpu::i8mm

#include "cpu/i8mm/end.inl"

namespace kvant::cpu::i8mm {

const PeakLoops* Peaks() {
  static const PeakLoops peaks = {
      .read = neon::Peaks()->read,
      .int8 = {"smmla v.4s", kAccumulators * 32, Accumulate<Int8>},
      .int16 = neon::Peaks()->int16,
      .float32 = neon::Peaks()->float32,
  };
  return &peaks;
}

}  // namespace kvant::cpu::i8mm

#else

namespace kvant::cpu::i8mm {
const PeakLoops* Peaks() { return nullptr; }
}  // namespace kvant::cpu::i8mm

#endif
