// Peak loops in AVX-VNNI: those of AVX2 but for products of bytes and of 16-bit integers.
#include "cpu/avxvnni/peaks.h"

#if defined(__x86_64__)

#include "cpu/avx2/peaks.h"
#include "cpu/intrinsics.h"

#include "cpu/avxvnni/begin.inl"

namespace kvant::cpu::avxvnni {
namespace {

#include "cpu/generic/peaks.inl"

struct IntegerSums {
  using Vector = __m256i;
  static Vector Zero() { return _mm256_setzero_si256(); }
  static int64_t Sum(Vector sum) {
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
    int64_t total = 0;
    for (const int32_t lane : lanes) total += lane;
    return total;
  }
};

struct Int8 : IntegerSums {
  static Vector One() { return _mm256_set1_epi8(1); }
  static void Step(Vector& sum, Vector& one) {
    asm("%{vex%} vpdpbusd %1, %1, %0" : "+x"(sum) : "x"(one));
  }
};

struct Int16 : IntegerSums {
  static Vector One() { return _mm256_set1_epi16(1); }
  static void Step(Vector& sum, Vector& one) {
    asm("%{vex%} vpdpwssd %1, %1, %0" : "+x"(sum) : "x"(one));
  }
};

}  // namespace
}  // namespace kvant::cpu::avxvnni

#include "cpu/avxvnni/end.inl"

namespace kvant::cpu::avxvnni {

const PeakLoops* Peaks() {
  static const PeakLoops peaks = {
      .read = avx2::Peaks()->read,
      .int8 = {"vpdpbusd ymm", kAccumulators * 32, Accumulate<Int8>},
      .int16 = {"vpdpwssd ymm", kAccumulators * 16, Accumulate<Int16>},
      .float32 = avx2::Peaks()->float32,
  };
  return &peaks;
}

}  // namespace kvant::cpu::avxvnni

#else

namespace kvant::cpu::avxvnni {
const PeakLoops* Peaks() { return nullptr; }
}  // namespace kvant::cpu::avxvnni

#endif
