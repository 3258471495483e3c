// The SIMD vocabulary of cpu/generic/*.inl in AVX2 with FMA and F16C: eight floats per vector.
//
// Included inside namespace kvant::cpu::avx2, between begin.inl and end.inl, after
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

#include "cpu/avx2/transpose.inl"

// The lower half of the lanes, and the upper one.
inline void StoreHalves(float* lower, float* upper, F32 v) {
  _mm_storeu_ps(lower, _mm256_castps256_ps128(v));
  _mm_storeu_ps(upper, _mm256_extractf128_ps(v, 1));
}

inline F32 Add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
inline F32 Sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
inline F32 Mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
inline F32 Div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
// a * b, or 0 where a is 0, whatever b is.
inline F32 MulNonZero(F32 a, F32 b) {
  return _mm256_and_ps(_mm256_cmp_ps(a, Zero(), _CMP_NEQ_UQ), _mm256_mul_ps(a, b));
}
// a * b + c, a * b - c and c - a * b, rounded once.
inline F32 MulAdd(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
inline F32 MulSub(F32 a, F32 b, F32 c) { return _mm256_fmsub_ps(a, b, c); }
inline F32 NegMulAdd(F32 a, F32 b, F32 c) { return _mm256_fnmadd_ps(a, b, c); }

// A factor of several products, AddTo(b, c): c += factor * b, rounded once.
struct FactorVector {
  F32 factor;
  explicit FactorVector(const float* source) : factor(Broadcast(*source)) {}
  void AddTo(F32 b, F32& c) const { c = MulAdd(factor, b, c); }
};
template <class Use>
inline void UseFactors(const Use& use) {
  use.template operator()<FactorVector>();
}

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
// v * 2^n for v near one and integral n <= 0; 0 where n < -125, NaN where n is NaN.
inline F32 ScaleUnlessTiny(F32 v, F32 n) {
  const __m256i exponents = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  const F32 scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(v), exponents));
  return _mm256_and_ps(scaled, _mm256_cmp_ps(n, Broadcast(-125.0f), _CMP_NLT_UQ));
}

// The sum of all lanes by halves: i + (i + 4), then i + (i + 2), ...
inline float SumByHalves(F32 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The largest lane of a vector without NaN.
inline float LargestLane(F32 v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Lane i gets what lane i ^ kDistance has, a power of two below kLanes.
template <int kDistance>
inline F32 SwapLanes(F32 v) {
  if constexpr (kDistance == 4) return _mm256_permute2f128_ps(v, v, 1);
  if constexpr (kDistance == 2) return _mm256_permute_ps(v, _MM_SHUFFLE(1, 0, 3, 2));
  if constexpr (kDistance == 1) return _mm256_permute_ps(v, _MM_SHUFFLE(2, 3, 0, 1));
}
// [p0, p0, p1, p1, ...] from the first pairs (0 <= pairs <= kLanes / 2) floats at source.
inline F32 LoadDuplicated(const float* source, int64_t pairs) {
  const __m256i index = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  return _mm256_permutevar8x32_ps(LoadPartial(source, pairs), index);
}

using I32 = __m256i;  // [kLanes] int32

inline I32 ZeroInts() { return _mm256_setzero_si256(); }
inline I32 LoadInts(const void* source) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(source));
}
inline void StoreInts(void* target, I32 v) {
  _mm256_storeu_si256(static_cast<__m256i*>(target), v);
}
inline I32 AddInts(I32 a, I32 b) { return _mm256_add_epi32(a, b); }
// sum += term. In assembly because GCC 12 copies many sums to other registers or memory and back.
inline void AddIntsTo(I32& sum, I32 term) { asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(term)); }
inline F32 ToFloat(I32 v) { return _mm256_cvtepi32_ps(v); }

// Products of int8 queries with a q8 key tile: lane i holds the sum for token i. A step takes four
// dimensions of kLanes tokens, [kLanes][4] bytes code + 128, with the query's four codes in
// `query`; the sum of all of the query's codes gives the start.
inline I32 KeyDotStart(int32_t) { return _mm256_setzero_si256(); }
// Signed codes here, because unsigned bytes above 127 would saturate in the sums of pairs.
inline I32 LoadKeyBytes(const uint8_t* source) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  return _mm256_xor_si256(bytes, _mm256_set1_epi8(static_cast<char>(0x80)));
}
inline void AddKeyProducts(I32 keys, I32 query, I32& sums) {
  const __m256i signed_query = _mm256_sign_epi8(query, keys);
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(keys), signed_query);
  AddIntsTo(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline void AddKeyDots(I32 keys, int32_t query, I32& sums) {
  AddKeyProducts(keys, _mm256_set1_epi32(query), sums);
}

// Products of int8 queries with q8 values as keys. A step takes kLanes dimensions of four tokens,
// [kLanes][4] codes, with a word of four codes of the query for each four dimensions, four times
// side by side; the sums of a token then lie in every fourth lane.
inline I32 LoadValuesAsKeys(const int8_t* source) {
  const __m128i columns = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm256_shuffle_epi8(LoadInts(source), _mm256_broadcastsi128_si256(columns));
}
// The sums of four tokens.
inline void StoreTokenSums(I32 sums, int32_t, int32_t* target) {
  const __m128i total =
      _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(target), total);
}

// Products of weights, 15-bit codes, with q8 values: a lane holds one dimension of four tokens,
// which meet the same four weights in every lane. A sum is the integer dot product, lane by lane.
//
// Here values are widened and VPMADDWD adds two neighbouring products; the halves of a lane's sum
// lie side by side until the end.
struct FourCodes {
  int16_t codes[4];
};
struct Dots {
  __m256i low, high;  // of lanes 0 to 3, 4 to 7
};

inline I32 Total(const Dots& dots) {
  const __m256i sums = _mm256_hadd_epi32(dots.low, dots.high);
  return _mm256_permute4x64_epi64(sums, _MM_SHUFFLE(3, 1, 2, 0));
}
inline Dots ZeroDots() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }

struct ValueCodes {
  __m256i low, high;  // [4][4] 16-bit codes of lanes 0 to 3, 4 to 7
};
inline ValueCodes LoadValueCodes(const int8_t* source) {
  const __m128i* halves = reinterpret_cast<const __m128i*>(source);
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(halves)),
          _mm256_cvtepi8_epi16(_mm_loadu_si128(halves + 1))};
}
inline ValueCodes LoadValueCodesPartial(const int8_t* source, int64_t lanes) {
  alignas(32) int8_t codes[4 * kLanes];
  StoreInts(codes, _mm256_maskload_epi32(reinterpret_cast<const int*>(source), FirstLanes(lanes)));
  return LoadValueCodes(codes);
}
inline void AddValueDots(const ValueCodes& values, const FourCodes& weights, Dots& dots) {
  int64_t bits;
  std::memcpy(&bits, &weights, sizeof bits);
  const __m256i four = _mm256_set1_epi64x(bits);
  AddIntsTo(dots.low, _mm256_madd_epi16(values.low, four));
  AddIntsTo(dots.high, _mm256_madd_epi16(values.high, four));
}
// kLanes weight codes, from 0 to 32767 in the lower halves of the lanes, as kLanes / 4 FourCodes.
inline void StoreWeightCodes(F32 codes, FourCodes* target) {
  const __m256i ints = _mm256_and_si256(_mm256_castps_si256(codes), _mm256_set1_epi32(0xffff));
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(ints), _mm256_extracti128_si256(ints, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(target), words);
}
