// Blocks side by side: lane b of every vector belongs to block b, so that vector code performs in
// each lane just the operations that scalar code would perform for that block, in the same order.
// Results are therefore the same for every number of lanes; one lane is the scalar reference.
//
// Included inside a namespace, and a target region where there is one, after the constant
// `kLanes` (1, 4, 8 or 16), "quant/search/scale_search.h" and <cstring>.

constexpr int kVectorBytes = 4 * kLanes;
#include "quant/search/vectors.inl"

inline Floats Select(Ints condition, Floats a, Floats b) { return condition ? a : b; }
inline Floats Clamp(Floats v, float low, float high) {
  return Min(Max(v, Splat(low)), Splat(high));
}
inline Floats Abs(Floats v) { return Max(v, -v); }
inline Floats FromBits(Ints v) { return reinterpret_cast<Floats>(v); }
inline Ints Bits(Floats v) { return reinterpret_cast<Ints>(v); }

inline bool Any(Ints condition) {
  int32_t any = 0;
  for (int lane = 0; lane < kLanes; ++lane) any |= condition[lane];
  return any != 0;
}

// The largest finite number and the smallest subnormal one of half precision.
constexpr float kHalfMax = 65504.0f;
constexpr float kHalfMin = 0x1p-24f;

// To the nearest integer, ties to even, for |v| < 2^22: near 1.5 * 2^23 a float has no bits below
// the units, so the addition rounds, and the low bits of the sum are the integer.
constexpr float kRounding = 12582912.0f;
inline Floats RoundToEven(Floats v) { return (v + kRounding) - kRounding; }

inline Floats InverseOrZero(Floats v) { return Select(Abs(v) >= 0x1p-126f, 1.0f / v, Floats{}); }

// The nearest halves, as floats, for |v| <= kHalfMax.
inline Floats RoundToHalf(Floats v) {
  const Ints bits = Bits(v);
  const Floats normal = FromBits((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fff);
  const Floats subnormal = (Abs(v) + 0.5f) - 0.5f;  // leaves no bits below 2^-24
  return Select(Abs(v) < 0x1p-14f, Select(v < 0.0f, -subnormal, subnormal), normal);
}

// The bits of numbers that are halves.
inline Ints HalfBits(Floats half) {
  const Ints bits = Bits(half);
  const Ints magnitude = bits & 0x7fffffff;
  const Ints normal = (magnitude - 0x38000000) >> 13;
  const Ints subnormal = Bits(FromBits(magnitude) + 0.5f) - 0x3f000000;
  return (magnitude < 0x38800000 ? subnormal : normal) | (bits >> 16 & 0x8000);
}

// ---- Transposition -------------------------------------------------------------------------

// [a0, b0, a1, b1, ...] from the lower or the upper halves of a and b.
template <int kFirst, size_t... kIndex>
Floats Interleave(Floats a, Floats b, std::index_sequence<kIndex...> /*lanes*/) {
  return __builtin_shufflevector(a, b, (kFirst + kIndex / 2 + kIndex % 2 * kLanes)...);
}

// tile[i * kLanes + lane] = rows[lane][i] for i < kLanes.
inline void TransposeTile(const float* const* rows, int64_t begin, float* tile) {
  Floats v[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) v[lane] = Load(rows[lane] + begin);
  if constexpr (kLanes > 1) {
    // Each round of perfect shuffles moves one bit of the index from row to column.
    constexpr auto kIndex = std::make_index_sequence<kLanes>();
    for (int width = 1; width < kLanes; width *= 2) {
      Floats shuffled[kLanes];
      for (int i = 0; i < kLanes / 2; ++i) {
        shuffled[2 * i] = Interleave<0>(v[i], v[i + kLanes / 2], kIndex);
        shuffled[2 * i + 1] = Interleave<kLanes / 2>(v[i], v[i + kLanes / 2], kIndex);
      }
      std::memcpy(v, shuffled, sizeof(v));
    }
  }
  for (int i = 0; i < kLanes; ++i) Store(tile + i * kLanes, v[i]);
}

// ---- Batches -------------------------------------------------------------------------------

// Errors count alike in all values, more in large values, or by the importance of the column.
enum class Weighting { kEqual, kMagnitude, kImportance };

// Values of a block and their weights, each [count][kLanes].
template <Weighting kWeighting>
struct Samples {
  static constexpr bool kHasImportance = kWeighting == Weighting::kImportance;

  const float* values;
  const float* weights;
  int count;

  Floats Value(int i) const { return Load(values + i * kLanes); }
  Floats Weigh(int i, Floats v) const {
    if constexpr (kWeighting != Weighting::kEqual) return Load(weights + i * kLanes) * v;
    return v;
  }
  Samples Group(int begin, int n) const {
    return {values + begin * kLanes, weights + begin * kLanes, n};
  }
};

// kLanes blocks, each scaled by a power of two to magnitudes below 4, so that squares neither
// overflow nor vanish whatever the input's size. The scaling is exact, except that values 2^-100
// times smaller than the block's largest may become 0.
template <int kValues, Weighting kWeighting>
struct Batch {
  alignas(64) float values[kValues * kLanes];
  alignas(64) float weights[kWeighting == Weighting::kEqual ? 1 : kValues * kLanes];
  Floats unit;     // value = unit * input value; 0 for a block that encodes as zeros
  Floats inverse;  // 1 / unit
  Floats peak;     // largest |value|

  Samples<kWeighting> All() const { return {values, weights, kValues}; }

  // The nearest finite half to a number of the unit range, again in the unit range.
  Floats Stored(Floats number) const { return Loaded(ToHalf(number)); }
  // The nearest finite half to a scale of the unit range, again in the unit range; a scale stays
  // different from zero.
  Floats StoredScale(Floats number) const { return Loaded(ToHalfScale(number)); }

  Floats ToHalf(Floats number) const {
    return RoundToHalf(Clamp(number * inverse, -kHalfMax, kHalfMax));
  }
  Floats ToHalfScale(Floats number) const {
    const Floats half = ToHalf(number);
    const Floats least = Select(number < 0.0f, Splat(-kHalfMin), Splat(kHalfMin));
    return Select((half == 0.0f) & (number != 0.0f), least, half);
  }
  Floats Loaded(Floats half) const { return half * unit; }
};

// NaN becomes 0, infinities the largest numbers.
inline void Sanitize(float* values, int count) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (int i = 0; i < count; ++i) {
    const Floats v = Load(values + i * kLanes);
    Store(values + i * kLanes, Select(v == v, Clamp(v, -kMax, kMax), Floats{}));
  }
}

// The bits of the largest magnitude; infinity and NaN are above all others.
inline Ints PeakBits(const float* values, int count) {
  Ints peak{};
  for (int i = 0; i < count; ++i) {
    const Ints bits = Bits(Load(values + i * kLanes)) & 0x7fffffff;
    peak = peak > bits ? peak : bits;
  }
  return peak;
}

// Negative and non-finite weights count as 0, and the block's weights are scaled to at most 1. A
// trace of weight everywhere keeps the sums positive, and unimportant values sensible.
inline void PrepareWeights(float* weights, int count) {
  constexpr float kTrace = 1e-6f;
  constexpr float kMax = std::numeric_limits<float>::max();
  Floats heaviest{};
  for (int i = 0; i < count; ++i) {
    const Floats w = Load(weights + i * kLanes);
    const Floats usable = Select((w >= 0.0f) & (w <= kMax), w, Floats{});
    Store(weights + i * kLanes, usable);
    heaviest = Max(heaviest, usable);
  }
  const Floats inverse = InverseOrZero(heaviest);
  for (int i = 0; i < count; ++i) {
    const Floats w = Load(weights + i * kLanes) * inverse + kTrace;
    Store(weights + i * kLanes, Select(heaviest >= 0x1p-126f, w, Splat(1.0f)));
  }
}

// Large values count more: each weight is multiplied by 6 m + x^2, m the mean of the block's
// squares. kMagnitude has no other weights.
template <int kValues, Weighting kWeighting>
void CountMagnitudes(Batch<kValues, kWeighting>& batch) {
  static_assert(kWeighting != Weighting::kEqual);
  Floats squares{};
  for (int i = 0; i < kValues; ++i) {
    const Floats value = Load(batch.values + i * kLanes);
    squares += value * value;
  }
  const Floats base = squares * (6.0f / kValues);
  for (int i = 0; i < kValues; ++i) {
    const Floats value = Load(batch.values + i * kLanes);
    Floats weight = base + value * value;
    if constexpr (kWeighting == Weighting::kImportance) {
      weight *= Load(batch.weights + i * kLanes);
    }
    Store(batch.weights + i * kLanes, weight);
  }
}

// importance: not read unless the weights come from it.
template <int kValues, Weighting kWeighting>
void LoadBatch(const float* const* values, const float* const* importance,
               Batch<kValues, kWeighting>& batch) {
  constexpr bool kHasImportance = kWeighting == Weighting::kImportance;
  for (int i = 0; i < kValues; i += kLanes) {
    TransposeTile(values, i, batch.values + i * kLanes);
    if constexpr (kHasImportance) TransposeTile(importance, i, batch.weights + i * kLanes);
  }
  Ints peak = PeakBits(batch.values, kValues);
  if (Any(peak >= 0x7f800000)) {
    Sanitize(batch.values, kValues);
    peak = PeakBits(batch.values, kValues);
  }
  // A power of two with the peak's exponent; the two largest share one, as 2^-127 is not normal.
  const Ints capped = peak < 0x7f000000 ? peak : Ints{} + 0x7e800000;
  const Ints exponent = capped & 0x7f800000;
  const Ints zeros = peak < std::bit_cast<int32_t>(kHalfMin / 2);
  batch.unit = Select(zeros, Floats{}, FromBits(0x7f000000 - exponent));
  batch.inverse = FromBits(zeros ? Ints{} : exponent);
  batch.peak = FromBits(peak) * batch.unit;
  for (int i = 0; i < kValues; ++i) {
    float* value = batch.values + i * kLanes;
    Store(value, Load(value) * batch.unit);
  }
  if constexpr (kHasImportance) PrepareWeights(batch.weights, kValues);
}

// codes[lane][i .. i + 3] from four vectors of integers + kRounding.
inline void StoreCodes(Floats c0, Floats c1, Floats c2, Floats c3, int i, int8_t* const* codes) {
  const Ints words =
      (Bits(c0) & 255) | (Bits(c1) & 255) << 8 | (Bits(c2) & 255) << 16 | Bits(c3) << 24;
  int32_t lanes[kLanes];
  std::memcpy(lanes, &words, sizeof(words));
  for (int lane = 0; lane < kLanes; ++lane) std::memcpy(codes[lane] + i, &lanes[lane], 4);
}
