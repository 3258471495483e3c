// Sixteen floats from each float element type. Included inside the target region of matmul.cpp.

using F32 = __m512;
constexpr int64_t kLanes = 16;
// 4 x 6 sums leave room for the operands in 32 registers.
constexpr int kFloatTileRows = 4;
constexpr int kFloatTileTokens = 6;
// 2 x 12 sums, one load of weights serves 12 products and one broadcast 2.
constexpr int kFloatPanelVectors = 2;
constexpr int kFloatPanelTokens = 12;

// In assembly because GCC 12 copies the sums of the intrinsic to other registers and back.
inline F32 MulAdd(F32 a, F32 b, F32 sum) {
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
inline F32 BroadcastFloat(const float* p) { return _mm512_set1_ps(*p); }
inline void StoreFloats(float* p, F32 lanes) { _mm512_storeu_ps(p, lanes); }
inline void TransposeFloats(F32* rows) { TransposeLanes(reinterpret_cast<__m512i*>(rows)); }
inline __mmask16 FirstLanes(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }

// Every element type: Load reads kLanes elements, LoadFirst `count` < kLanes of them, the rest
// zero. Pointers may be odd.
struct ElementF32 {
  static constexpr int64_t kBytes = 4;
  static F32 Load(const std::byte* p) { return _mm512_loadu_ps(p); }
  static F32 LoadFirst(const std::byte* p, int64_t count) {
    return _mm512_maskz_loadu_ps(FirstLanes(count), p);
  }
};

struct ElementF16 {
  static constexpr int64_t kBytes = 2;
  static F32 Load(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F32 LoadFirst(const std::byte* p, int64_t count) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstLanes(count), p));
  }
};

struct ElementBf16 {
  static constexpr int64_t kBytes = 2;
  static F32 Widen(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static F32 Load(const std::byte* p) {
    return Widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F32 LoadFirst(const std::byte* p, int64_t count) {
    return Widen(_mm256_maskz_loadu_epi16(FirstLanes(count), p));
  }
};
