// The SIMD vocabulary of cpu/generic/*.inl in AVX-512: sixteen floats per vector.
//
// Included inside namespace kvant::cpu::avx512vnni, between begin.inl and end.inl, after
// cpu/intrinsics.h and <cstdint>. The folders of other instruction sets define the same names, and
// every operation rounds in the same way there, so that generic code gives the same bits
// everywhere. "Partial" forms touch only the first `count` (0 <= count <= kLanes) elements of
// memory; lanes that are not loaded are zero.

inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;

using F32 = __m512;  // [kLanes] float

inline __mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>((1u << static_cast<unsigned>(count)) - 1u);
}

inline F32 Zero() { return _mm512_setzero_ps(); }
inline F32 Broadcast(float value) { return _mm512_set1_ps(value); }
inline float FirstLane(F32 v) { return _mm512_cvtss_f32(v); }

inline F32 Load(const float* source) { return _mm512_loadu_ps(source); }
inline void Store(float* target, F32 v) { _mm512_storeu_ps(target, v); }
inline F32 LoadPartial(const float* source, int64_t count) {
  return _mm512_maskz_loadu_ps(FirstLanes(count), source);
}
inline void StorePartial(float* target, F32 v, int64_t count) {
  _mm512_mask_storeu_ps(target, FirstLanes(count), v);
}

// F16 in memory, float in registers; stores round to nearest even.
inline F32 LoadF16(const uint16_t* source) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)));
}
inline F32 LoadF16Partial(const uint16_t* source, int64_t count) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstLanes(count), source));
}
inline __m256i RoundToF16(F32 v) {
  return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline void StoreF16(uint16_t* target, F32 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), RoundToF16(v));
}
inline void StoreF16Partial(uint16_t* target, F32 v, int64_t count) {
  _mm256_mask_storeu_epi16(target, FirstLanes(count), RoundToF16(v));
}

#include "cpu/avx512vnni/transpose.inl"

// Lane r of vector l becomes lane l of vector r, of kLanes vectors.
inline void TransposeFloats(F32* vectors) { TransposeLanes(reinterpret_cast<__m512i*>(vectors)); }

// The lower half of the lanes, and the upper one.
inline void StoreHalves(float* lower, float* upper, F32 v) {
  _mm256_storeu_ps(lower, _mm512_castps512_ps256(v));
  _mm256_storeu_ps(upper, _mm512_extractf32x8_ps(v, 1));
}

inline F32 Add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
inline F32 Sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
inline F32 Mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
inline F32 Div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
// a * b, or 0 where a is 0, whatever b is.
inline F32 MulNonZero(F32 a, F32 b) {
  return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(a, Zero(), _CMP_NEQ_UQ), a, b);
}
// a * b + c, a * b - c and c - a * b, rounded once.
inline F32 MulAdd(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
inline F32 MulSub(F32 a, F32 b, F32 c) { return _mm512_fmsub_ps(a, b, c); }
inline F32 NegMulAdd(F32 a, F32 b, F32 c) { return _mm512_fnmadd_ps(a, b, c); }

// A factor of several products, AddTo(b, c): c += factor * b, rounded once. As a vector of its own
// it takes a fifth of the time of two products on Zen 4, and nothing on Zen 5, where a load with
// every product, from memory, takes a ninth.
struct FactorVector {
  F32 factor;
  explicit FactorVector(const float* source) : factor(_mm512_set1_ps(*source)) {
    asm("" : "+v"(factor));  // or GCC reads it with every product, too
  }
  void AddTo(F32 b, F32& c) const { c = MulAdd(factor, b, c); }
};
struct FactorInMemory {
  const float* source;
  explicit FactorInMemory(const float* of) : source(of) {}
  void AddTo(F32 b, F32& c) const {
    asm("vfmadd231ps %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*source), "v"(b));
  }
};
// use.operator()<Factor>() with what is faster on this CPU.
template <class Use>
inline void UseFactors(const Use& use) {
  if (HasWideAmdUnits()) {
    use.template operator()<FactorVector>();
  } else {
    use.template operator()<FactorInMemory>();
  }
}

// Even lanes a * b - c, odd lanes a * b + c, rounded once.
inline F32 MulSubAdd(F32 a, F32 b, F32 c) { return _mm512_fmaddsub_ps(a, b, c); }

// The second operand where one of the two is NaN: Max(bound, x) lets NaN in x through.
inline F32 Max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
inline F32 Min(F32 a, F32 b) { return _mm512_min_ps(a, b); }

// To the nearest integer, ties to even.
inline F32 Round(F32 v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// v * 2^n for integral n in [-160, 160], rounded once.
inline F32 ScaleByPowerOfTwo(F32 v, F32 n) { return _mm512_scalef_ps(v, n); }
// v * 2^n for v near one and integral n <= 0; 0 where n < -125, NaN where n is NaN.
inline F32 ScaleUnlessTiny(F32 v, F32 n) {
  const __mmask16 large = _mm512_cmp_ps_mask(n, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(large, v, n);
}

// The sum of all lanes by halves: i + (i + 8), then i + (i + 4), ...
inline float SumByHalves(F32 v) {
  const __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), upper);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The largest lane of a vector without NaN.
inline float LargestLane(F32 v) { return _mm512_reduce_max_ps(v); }

// Lane i gets what lane i ^ kDistance has, a power of two below kLanes.
template <int kDistance>
inline F32 SwapLanes(F32 v) {
  if constexpr (kDistance == 8) return _mm512_shuffle_f32x4(v, v, _MM_SHUFFLE(1, 0, 3, 2));
  if constexpr (kDistance == 4) return _mm512_shuffle_f32x4(v, v, _MM_SHUFFLE(2, 3, 0, 1));
  if constexpr (kDistance == 2) return _mm512_permute_ps(v, _MM_SHUFFLE(1, 0, 3, 2));
  if constexpr (kDistance == 1) return _mm512_permute_ps(v, _MM_SHUFFLE(2, 3, 0, 1));
}
// [p0, p0, p1, p1, ...] from the first pairs (0 <= pairs <= kLanes / 2) floats at source.
inline F32 LoadDuplicated(const float* source, int64_t pairs) {
  const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(index, LoadPartial(source, pairs));
}

using I32 = __m512i;  // [kLanes] int32

inline I32 ZeroInts() { return _mm512_setzero_si512(); }
inline I32 LoadInts(const void* source) { return _mm512_loadu_si512(source); }
inline void StoreInts(void* target, I32 v) { _mm512_storeu_si512(target, v); }
inline I32 AddInts(I32 a, I32 b) { return _mm512_add_epi32(a, b); }
inline F32 ToFloat(I32 v) { return _mm512_cvtepi32_ps(v); }

// sums += products of unsigned with signed bytes, four neighbours in each lane. In assembly because
// GCC 12 copies the sums of the intrinsic to other registers and back.
inline void AddByteProducts(I32 unsigned_bytes, I32 signed_bytes, I32& sums) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(unsigned_bytes), "v"(signed_bytes));
}

// Products of int8 queries with a q8 key tile: lane i holds the sum for token i. A step takes four
// dimensions of kLanes tokens, [kLanes][4] bytes code + 128, with the query's four codes in
// `query`; the sum of all of the query's codes gives the start.
inline I32 KeyDotStart(int32_t query_sum) { return _mm512_set1_epi32(-128 * query_sum); }
inline I32 LoadKeyBytes(const uint8_t* source) { return _mm512_loadu_si512(source); }
inline void AddKeyDots(I32 keys, int32_t query, I32& sums) {
  AddByteProducts(keys, _mm512_set1_epi32(query), sums);
}

// Products of int8 queries with q8 values as keys. A step takes kLanes dimensions of four tokens,
// [kLanes][4] codes, with a word of four codes of the query for each four dimensions, four times
// side by side; the sums of a token then lie in every fourth lane.
inline I32 LoadValuesAsKeys(const int8_t* source) {
  const __m128i columns = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i codes =
      _mm512_shuffle_epi8(_mm512_loadu_si512(source), _mm512_broadcast_i32x4(columns));
  return _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
}
inline void AddKeyProducts(I32 keys, I32 query, I32& sums) { AddByteProducts(keys, query, sums); }
// The sums of four tokens; the codes of the keys are 128 more than they are worth.
inline void StoreTokenSums(I32 sums, int32_t query_sum, int32_t* target) {
  const __m256i half =
      _mm256_add_epi32(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
  const __m128i total =
      _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(target),
                   _mm_add_epi32(total, _mm_set1_epi32(-128 * query_sum)));
}

// Products of weights, 15-bit codes, with q8 values: a lane holds one dimension of four tokens,
// which meet the same four weights in every lane. A sum is the integer dot product, lane by lane.
//
// Here a weight is 256 * high + low, and VPDPBUSD multiplies each part as unsigned bytes.
struct FourCodes {
  uint32_t low, high;  // four bytes each
};
struct Dots {
  I32 low, high;
};

inline I32 Total(const Dots& dots) { return AddInts(_mm512_slli_epi32(dots.high, 8), dots.low); }
inline Dots ZeroDots() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }

using ValueCodes = __m512i;
inline ValueCodes LoadValueCodes(const int8_t* source) { return _mm512_loadu_si512(source); }
inline ValueCodes LoadValueCodesPartial(const int8_t* source, int64_t lanes) {
  return _mm512_maskz_loadu_epi32(FirstLanes(lanes), source);
}
inline void AddValueDots(ValueCodes values, const FourCodes& weights, Dots& dots) {
  AddByteProducts(_mm512_set1_epi32(static_cast<int>(weights.low)), values, dots.low);
  AddByteProducts(_mm512_set1_epi32(static_cast<int>(weights.high)), values, dots.high);
}
// kLanes weight codes, from 0 to 32767 in the lower halves of the lanes, as kLanes / 4 FourCodes.
inline void StoreWeightCodes(F32 codes, FourCodes* target) {
  const __m256i words = _mm512_cvtepi32_epi16(_mm512_castps_si512(codes));
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  const __m256i parts = _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), parts);
}
