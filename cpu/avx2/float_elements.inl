// Eight floats from each float element type. Included inside the target region of matmul.cpp.

using F32 = __m256;
constexpr int64_t kLanes = 8;
// 4 x 3 sums leave four of the 16 registers for the operands.
constexpr int kFloatTileRows = 4;
constexpr int kFloatTileTokens = 3;
// 2 x 6 sums, two vectors of weights and two broadcasts.
constexpr int kFloatPanelVectors = 2;
constexpr int kFloatPanelTokens = 6;

// In assembly because GCC 12 copies the sums of the intrinsic to other registers and back.
inline F32 MulAdd(F32 a, F32 b, F32 sum) {
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  return sum;
}
inline F32 BroadcastFloat(const float* p) { return _mm256_broadcast_ss(p); }
inline void StoreFloats(float* p, F32 lanes) { _mm256_storeu_ps(p, lanes); }

#include "cpu/avx2/transpose.inl"

// Every element type: Load reads kLanes elements, LoadFirst `count` < kLanes of them, the rest
// zero. Pointers may be odd.
struct ElementF32 {
  static constexpr int64_t kBytes = 4;
  static F32 Load(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
  static F32 LoadFirst(const std::byte* p, int64_t count) {
    alignas(32) std::byte padded[32] = {};
    std::memcpy(padded, p, static_cast<size_t>(count) * 4);
    return Load(padded);
  }
};

template <class Element>
inline F32 LoadFirstHalves(const std::byte* p, int64_t count) {
  alignas(16) std::byte padded[16] = {};
  std::memcpy(padded, p, static_cast<size_t>(count) * 2);
  return Element::Load(padded);
}

struct ElementF16 {
  static constexpr int64_t kBytes = 2;
  static F32 Load(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F32 LoadFirst(const std::byte* p, int64_t count) {
    return LoadFirstHalves<ElementF16>(p, count);
  }
};

struct ElementBf16 {
  static constexpr int64_t kBytes = 2;
  static F32 Load(const std::byte* p) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static F32 LoadFirst(const std::byte* p, int64_t count) {
    return LoadFirstHalves<ElementBf16>(p, count);
  }
};
