// Peak loops in AVX2 with FMA. Products of bytes are added up in 16 bits eight times before they
// are widened, which is as rarely as any kernel may.
#include "cpu/avx2/peaks.h"

#if defined(__x86_64__)

#include "cpu/intrinsics.h"

#include "cpu/avx2/begin.inl"

namespace kvant::cpu::avx2 {
namespace {

#include "cpu/generic/peaks.inl"

struct Words {
  __m256i a, b, c, d;

  void Take(const std::byte* piece) {
    const auto* source = reinterpret_cast<const __m256i*>(piece);
    a = _mm256_xor_si256(a, _mm256_load_si256(source));
    b = _mm256_xor_si256(b, _mm256_load_si256(source + 1));
    c = _mm256_xor_si256(c, _mm256_load_si256(source + 2));
    d = _mm256_xor_si256(d, _mm256_load_si256(source + 3));
    a = _mm256_xor_si256(a, _mm256_load_si256(source + 4));
    b = _mm256_xor_si256(b, _mm256_load_si256(source + 5));
    c = _mm256_xor_si256(c, _mm256_load_si256(source + 6));
    d = _mm256_xor_si256(d, _mm256_load_si256(source + 7));
  }
};

uint64_t Read(const std::byte* data, size_t bytes) {
  const __m256i zero = _mm256_setzero_si256();
  Words words{zero, zero, zero, zero};
  TakeStreams(data, bytes, words);
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(
      reinterpret_cast<__m256i*>(lanes),
      _mm256_xor_si256(_mm256_xor_si256(words.a, words.b), _mm256_xor_si256(words.c, words.d)));
  return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
}

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

constexpr int kByteProducts = 8;  // added up in 16 bits

struct Int8 : IntegerSums {
  static Vector One() { return _mm256_set1_epi8(1); }
  static Vector Products(Vector& one) {
    Hide(one);  // other operands, as far as the compiler knows
    return _mm256_maddubs_epi16(one, one);
  }
  static void Step(Vector& sum, Vector& one) {
    Vector products = Products(one);
    products = _mm256_add_epi16(products, Products(one));
    products = _mm256_add_epi16(products, Products(one));
    products = _mm256_add_epi16(products, Products(one));
    products = _mm256_add_epi16(products, Products(one));
    products = _mm256_add_epi16(products, Products(one));
    products = _mm256_add_epi16(products, Products(one));
    products = _mm256_add_epi16(products, Products(one));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
  }
};

struct Int16 : IntegerSums {
  static Vector One() { return _mm256_set1_epi16(1); }
  static void Step(Vector& sum, Vector& one) {
    Hide(one);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(one, one));
  }
};

struct Float32 {
  using Vector = __m256;
  static Vector Zero() { return _mm256_setzero_ps(); }
  static Vector One() { return _mm256_set1_ps(1.0f); }
  static void Step(Vector& sum, Vector& one) { sum = _mm256_fmadd_ps(one, one, sum); }
  static int64_t Sum(Vector sum) { return IntegerSums::Sum(_mm256_cvtps_epi32(sum)); }
};

}  // namespace
}  // namespace kvant::cpu::avx2

#include "cpu/avx2/end.inl"

namespace kvant::cpu::avx2 {

const PeakLoops* Peaks() {
  static constexpr PeakLoops kPeaks = {
      .read = Read,
      .int8 = {"vpmaddubsw ymm", kAccumulators * kByteProducts * 32, Accumulate<Int8>},
      .int16 = {"vpmaddwd ymm", kAccumulators * 16, Accumulate<Int16>},
      .float32 = {"vfmadd231ps ymm", kAccumulators * 8, Accumulate<Float32>},
  };
  return &kPeaks;
}

}  // namespace kvant::cpu::avx2

#else

namespace kvant::cpu::avx2 {
const PeakLoops* Peaks() { return nullptr; }
}  // namespace kvant::cpu::avx2

#endif
