// Peak loops in AVX2 with FMA. Products of bytes are added up in 16 bits eight times before they
// are widened, which is as rarely as any kernel may.
#include "cpu/avx2/peaks.h"

#if defined(__x86_64__)

#include "cpu/intrinsics.h"

#include "cpu/avx2/begin.h"

namespace kvant::cpu::avx2 {
namespace {

constexpr int kAccumulators = 10;  // latency 4 or 5, two a cycle
constexpr int kBytesAdded = 8;

// Hides the value from the optimiser.
inline void Hide(__m256i& v) { asm volatile("" : "+x"(v)); }
inline void Hide(__m256& v) { asm volatile("" : "+x"(v)); }

int64_t Sum(__m256i v) {
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), v);
  int64_t sum = 0;
  for (const int32_t lane : lanes) sum += lane;
  return sum;
}

uint64_t Read(const std::byte* data, size_t bytes) {
  __m256i words[4] = {};
  for (size_t i = 0; i < bytes; i += kReadPieceBytes / 2) {
    for (size_t k = 0; k < 4; ++k) {
      words[k] = _mm256_xor_si256(
          words[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + 32 * k)));
    }
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(words[0], words[1]), _mm256_xor_si256(words[2], words[3]));
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), all);
  return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
}

int64_t Int8(int64_t rounds) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i a = _mm256_set1_epi8(1);
  __m256i b[kBytesAdded];
  __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (__m256i& v : b) v = _mm256_set1_epi8(1);
  Hide(a);
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m256i& sum : sums) {
      __m256i products = _mm256_setzero_si256();
      for (int k = 0; k < kBytesAdded; ++k) {
        Hide(b[k]);
        products = _mm256_add_epi16(products, _mm256_maddubs_epi16(a, b[k]));
      }
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, ones));
    }
  }
  return Sum(sums[0]) + Sum(sums[1]);
}

int64_t Int16(int64_t rounds) {
  __m256i a = _mm256_set1_epi16(1);
  __m256i sums[kAccumulators] = {};
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m256i& sum : sums) {
      Hide(a);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, a));
    }
  }
  int64_t total = 0;
  for (const __m256i& sum : sums) total += Sum(sum);
  return total;
}

int64_t Float32(int64_t rounds) {
  __m256 one = _mm256_set1_ps(1.0f);
  __m256 sums[kAccumulators] = {};
  Hide(one);
  for (__m256& sum : sums) Hide(sum);
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(one, one, sum);
  }
  int64_t total = 0;
  for (const __m256& sum : sums) total += Sum(_mm256_cvtps_epi32(sum));
  return total;
}

}  // namespace
}  // namespace kvant::cpu::avx2

#include "cpu/avx2/end.h"

namespace kvant::cpu::avx2 {

const PeakLoops* Peaks() {
  static constexpr PeakLoops kPeaks = {
      .read = Read,
      .int8 = {"vpmaddubsw ymm", 2 * kBytesAdded * 32, Int8},
      .int16 = {"vpmaddwd ymm", kAccumulators * 16, Int16},
      .float32 = {"vfmadd231ps ymm", kAccumulators * 8, Float32},
  };
  return &kPeaks;
}

}  // namespace kvant::cpu::avx2

#else

namespace kvant::cpu::avx2 {
const PeakLoops* Peaks() { return nullptr; }
}  // namespace kvant::cpu::avx2

#endif
