// Peak loops in AVX-512 with VNNI.
#include "cpu/avx512vnni/peaks.h"

#if defined(__x86_64__)

#include "cpu/intrinsics.h"

#include "cpu/avx512vnni/begin.h"

namespace kvant::cpu::avx512vnni {
namespace {

constexpr int kAccumulators = 12;  // latency 5, two a cycle

// Hides the value from the optimiser.
inline void Hide(__m512i& v) { asm volatile("" : "+v"(v)); }
inline void Hide(__m512& v) { asm volatile("" : "+v"(v)); }

int64_t Sum(__m512i v) {
  alignas(64) int32_t lanes[16];
  _mm512_store_si512(lanes, v);
  int64_t sum = 0;
  for (const int32_t lane : lanes) sum += lane;
  return sum;
}

uint64_t Read(const std::byte* data, size_t bytes) {
  __m512i words[4] = {};
  for (size_t i = 0; i < bytes; i += kReadPieceBytes) {
    for (size_t k = 0; k < 4; ++k) {
      words[k] = _mm512_xor_si512(words[k], _mm512_load_si512(data + i + 64 * k));
    }
  }
  const __m512i all =
      _mm512_xor_si512(_mm512_xor_si512(words[0], words[1]), _mm512_xor_si512(words[2], words[3]));
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, all);
  uint64_t word = 0;
  for (const uint64_t lane : lanes) word ^= lane;
  return word;
}

int64_t Int8(int64_t rounds) {
  __m512i ones = _mm512_set1_epi8(1);
  __m512i sums[kAccumulators] = {};
  Hide(ones);
  for (__m512i& sum : sums) Hide(sum);
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, ones, ones);
  }
  int64_t total = 0;
  for (const __m512i& sum : sums) total += Sum(sum);
  return total;
}

int64_t Int16(int64_t rounds) {
  __m512i ones = _mm512_set1_epi16(1);
  __m512i sums[kAccumulators] = {};
  Hide(ones);
  for (__m512i& sum : sums) Hide(sum);
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m512i& sum : sums) sum = _mm512_dpwssd_epi32(sum, ones, ones);
  }
  int64_t total = 0;
  for (const __m512i& sum : sums) total += Sum(sum);
  return total;
}

int64_t Float32(int64_t rounds) {
  __m512 one = _mm512_set1_ps(1.0f);
  __m512 sums[kAccumulators] = {};
  Hide(one);
  for (__m512& sum : sums) Hide(sum);
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(one, one, sum);
  }
  int64_t total = 0;
  for (const __m512& sum : sums) total += Sum(_mm512_cvtps_epi32(sum));
  return total;
}

}  // namespace
}  // namespace kvant::cpu::avx512vnni

#include "cpu/avx512vnni/end.h"

namespace kvant::cpu::avx512vnni {

const PeakLoops* Peaks() {
  static constexpr PeakLoops kPeaks = {
      .read = Read,
      .int8 = {"vpdpbusd zmm", kAccumulators * 64, Int8},
      .int16 = {"vpdpwssd zmm", kAccumulators * 32, Int16},
      .float32 = {"vfmadd231ps zmm", kAccumulators * 16, Float32},
  };
  return &kPeaks;
}

}  // namespace kvant::cpu::avx512vnni

#else

namespace kvant::cpu::avx512vnni {
const PeakLoops* Peaks() { return nullptr; }
}  // namespace kvant::cpu::avx512vnni

#endif
