// The SIMD vocabulary of cpu/generic/*.inl in AVX2 with FMA and F16C: eight floats per vector.
//
// Included inside namespace kvant::cpu::avx2, between begin.h and end.h, after
// cpu/intrinsics.h and <cstdint>. The folders of other instruction sets define the same names, and
// every operation rounds in the same way there, so that generic code gives the same bits
// everywhere. "Partial" forms touch only the first `count` (0 <= count <= kLanes) elements of
// memory; lanes that are not loaded are zero.

inline constexpr int kLanes = 8;
inline constexpr int kRegisters = 16;

using F32 = __m256;  // [kLanes] float

inline __m256i FirstLanes(int64_t count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
}

inline F32 Zero() { return _mm256_setzero_ps(); }
inline F32 Broadcast(float value) { return _mm256_set1_ps(value); }
inline float FirstLane(F32 v) { return _mm256_cvtss_f32(v); }

inline F32 Load(const float* source) { return _mm256_loadu_ps(source); }
inline void Store(float* target, F32 v) { _mm256_storeu_ps(target, v); }
inline F32 LoadPartial(const float* source, int64_t count) {
  return _mm256_maskload_ps(source, FirstLanes(count));
}
inline void StorePartial(float* target, F32 v, int64_t count) {
  _mm256_maskstore_ps(target, FirstLanes(count), v);
}

// F16 in memory, float in registers; stores round to nearest even.
inline F32 LoadF16(const uint16_t* source) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
}
inline F32 LoadF16Partial(const uint16_t* source, int64_t count) {
  alignas(16) uint16_t halves[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) halves[i] = source[i];
  return LoadF16(halves);
}
inline void StoreF16(uint16_t* target, F32 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(target),
                   _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline void StoreF16Partial(uint16_t* target, F32 v, int64_t count) {
  alignas(16) uint16_t halves[kLanes];
  StoreF16(halves, v);
  for (int64_t i = 0; i < count; ++i) target[i] = halves[i];
}

inline F32 Add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
inline F32 Sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
inline F32 Mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
inline F32 Div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
// a * b + c, a * b - c and c - a * b, rounded once.
inline F32 MulAdd(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
inline F32 MulSub(F32 a, F32 b, F32 c) { return _mm256_fmsub_ps(a, b, c); }
inline F32 NegMulAdd(F32 a, F32 b, F32 c) { return _mm256_fnmadd_ps(a, b, c); }
// Even lanes a * b - c, odd lanes a * b + c, rounded once.
inline F32 MulSubAdd(F32 a, F32 b, F32 c) { return _mm256_fmaddsub_ps(a, b, c); }

// The second operand where one of the two is NaN: Max(bound, x) lets NaN in x through.
inline F32 Max(F32 a, F32 b) { return _mm256_max_ps(a, b); }
inline F32 Min(F32 a, F32 b) { return _mm256_min_ps(a, b); }

// To the nearest integer, ties to even.
inline F32 Round(F32 v) {
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// 2^n for integral n in [-126, 127].
inline F32 PowerOfTwo(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
// v * 2^n for integral n in [-160, 160], rounded once: the first of the two products is exact for v
// near one.
inline F32 ScaleByPowerOfTwo(F32 v, F32 n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  return Mul(Mul(v, PowerOfTwo(half)), PowerOfTwo(_mm256_sub_epi32(whole, half)));
}

// [x1, x0, x3, x2, ...]
inline F32 SwapPairs(F32 v) { return _mm256_permute_ps(v, _MM_SHUFFLE(2, 3, 0, 1)); }
// [p0, p0, p1, p1, ...] from the first pairs (0 <= pairs <= kLanes / 2) floats at source.
inline F32 LoadDuplicated(const float* source, int64_t pairs) {
  const __m256i index = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  return _mm256_permutevar8x32_ps(LoadPartial(source, pairs), index);
}

// Products of int8 queries with a q8 key tile: lane i holds the sum for token i. A step takes four
// dimensions of kLanes tokens, [kLanes][4] bytes code + 128, with the query's four codes in
// `query`; the sum of all of the query's codes gives the start.
using I32 = __m256i;  // [kLanes] int32

inline I32 KeyDotStart(int32_t) { return _mm256_setzero_si256(); }
// Signed codes here, because unsigned bytes above 127 would saturate in the sums of pairs.
inline I32 LoadKeyBytes(const uint8_t* source) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  return _mm256_xor_si256(bytes, _mm256_set1_epi8(static_cast<char>(0x80)));
}
inline I32 KeyDot(I32 keys, int32_t query, I32 sum) {
  const __m256i signed_query = _mm256_sign_epi8(_mm256_set1_epi32(query), keys);
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(keys), signed_query);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline F32 ToFloat(I32 v) { return _mm256_cvtepi32_ps(v); }

// Codes of token `slot` in the first `count` dimensions of a q8 value group, [count][4].
inline F32 LoadQ8Partial(const int8_t* group, int slot, int64_t count) {
  const __m256i dims =
      _mm256_maskload_epi32(reinterpret_cast<const int*>(group), FirstLanes(count));
  const __m256i top = _mm256_sll_epi32(dims, _mm_cvtsi32_si128(24 - 8 * slot));
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 24));
}
