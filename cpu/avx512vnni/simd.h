// The SIMD vocabulary of cpu/generic/*.inl in AVX-512: sixteen floats per vector.
//
// Included inside namespace kvant::cpu::avx512vnni, between begin.h and end.h, after
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

inline F32 Add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
inline F32 Sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
inline F32 Mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
inline F32 Div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
// a * b + c, a * b - c and c - a * b, rounded once.
inline F32 MulAdd(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
inline F32 MulSub(F32 a, F32 b, F32 c) { return _mm512_fmsub_ps(a, b, c); }
inline F32 NegMulAdd(F32 a, F32 b, F32 c) { return _mm512_fnmadd_ps(a, b, c); }
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

// [x1, x0, x3, x2, ...]
inline F32 SwapPairs(F32 v) { return _mm512_permute_ps(v, _MM_SHUFFLE(2, 3, 0, 1)); }
// [p0, p0, p1, p1, ...] from the first pairs (0 <= pairs <= kLanes / 2) floats at source.
inline F32 LoadDuplicated(const float* source, int64_t pairs) {
  const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(index, LoadPartial(source, pairs));
}

// Products of int8 queries with a q8 key tile: lane i holds the sum for token i. A step takes four
// dimensions of kLanes tokens, [kLanes][4] bytes code + 128, with the query's four codes in
// `query`; the sum of all of the query's codes gives the start.
using I32 = __m512i;  // [kLanes] int32

inline I32 KeyDotStart(int32_t query_sum) { return _mm512_set1_epi32(-128 * query_sum); }
inline I32 LoadKeyBytes(const uint8_t* source) { return _mm512_loadu_si512(source); }
inline I32 KeyDot(I32 keys, int32_t query, I32 sum) {
  return _mm512_dpbusd_epi32(sum, keys, _mm512_set1_epi32(query));
}
inline F32 ToFloat(I32 v) { return _mm512_cvtepi32_ps(v); }

// Codes of token `slot` in the first `count` dimensions of a q8 value group, [count][4].
inline F32 LoadQ8Partial(const int8_t* group, int slot, int64_t count) {
  const __m512i dims = _mm512_maskz_loadu_epi32(FirstLanes(count), group);
  const __m512i top = _mm512_sll_epi32(dims, _mm_cvtsi32_si128(24 - 8 * slot));
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24));
}
