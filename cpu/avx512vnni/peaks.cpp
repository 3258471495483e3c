// Peak loops in AVX-512 with VNNI.
#include "cpu/avx512vnni/peaks.h"

#if defined(__x86_64__)

#include "cpu/intrinsics.h"

#include "cpu/avx512vnni/begin.inl"

namespace kvant::cpu::avx512vnni {
namespace {

#include "cpu/generic/peaks.inl"

struct Words {
  __m512i a, b, c, d;

  void Take(const std::byte* piece) {
    a = _mm512_xor_si512(a, _mm512_load_si512(piece));
    b = _mm512_xor_si512(b, _mm512_load_si512(piece + 64));
    c = _mm512_xor_si512(c, _mm512_load_si512(piece + 128));
    d = _mm512_xor_si512(d, _mm512_load_si512(piece + 192));
  }
};

uint64_t Read(const std::byte* data, size_t bytes) {
  const __m512i zero = _mm512_setzero_si512();
  Words words{zero, zero, zero, zero};
  TakeStreams(data, bytes, words);
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, _mm512_xor_si512(_mm512_xor_si512(words.a, words.b),
                                             _mm512_xor_si512(words.c, words.d)));
  uint64_t word = 0;
  for (const uint64_t lane : lanes) word ^= lane;
  return word;
}

struct IntegerSums {
  using Vector = __m512i;
  static Vector Zero() { return _mm512_setzero_si512(); }
  static int64_t Sum(Vector sum) {
    alignas(64) int32_t lanes[16];
    _mm512_store_si512(lanes, sum);
    int64_t total = 0;
    for (const int32_t lane : lanes) total += lane;
    return total;
  }
};

struct Int8 : IntegerSums {
  static Vector One() { return _mm512_set1_epi8(1); }
  static void Step(Vector& sum, Vector& one) { sum = _mm512_dpbusd_epi32(sum, one, one); }
};

struct Int16 : IntegerSums {
  static Vector One() { return _mm512_set1_epi16(1); }
  static void Step(Vector& sum, Vector& one) { sum = _mm512_dpwssd_epi32(sum, one, one); }
};

struct Float32 {
  using Vector = __m512;
  static Vector Zero() { return _mm512_setzero_ps(); }
  static Vector One() { return _mm512_set1_ps(1.0f); }
  static void Step(Vector& sum, Vector& one) { sum = _mm512_fmadd_ps(one, one, sum); }
  static int64_t Sum(Vector sum) { return IntegerSums::Sum(_mm512_cvtps_epi32(sum)); }
};

}  // namespace
}  // namespace kvant::cpu::avx512vnni

#include "cpu/avx512vnni/end.inl"

namespace kvant::cpu::avx512vnni {

const PeakLoops* Peaks() {
  static constexpr PeakLoops kPeaks = {
      .read = Read,
      .int8 = {"vpdpbusd zmm", kAccumulators * 64, Accumulate<Int8>},
      .int16 = {"vpdpwssd zmm", kAccumulators * 32, Accumulate<Int16>},
      .float32 = {"vfmadd231ps zmm", kAccumulators * 16, Accumulate<Float32>},
  };
  return &kPeaks;
}

}  // namespace kvant::cpu::avx512vnni

#else

namespace kvant::cpu::avx512vnni {
const PeakLoops* Peaks() { return nullptr; }
}  // namespace kvant::cpu::avx512vnni

#endif
