// Blocks of 256 weights and activations as NEON multiplies them, for cpu/neon and cpu/i8mm.
// Included inside the target region of their matmul.cpp.
//
// SDOT multiplies signed bytes and adds four neighbouring products per lane. A vector holds a group
// of 16 consecutive values, so codes lie in plain order, and the products of the values that share
// a scale, one or two vectors, fall into the four lanes of one sum; pairwise additions then bring
// four such sums into the four lanes of one vector, which meets four scales, also in plain order.
// Integers are exact: how they are added never changes a bit.

// The traits of a format: how many values share a scale and an offset, 16 or 32.
template <int kScale, bool kOffsets>
struct CodeTraits {
  static constexpr int kScaleValues = kScale;
  static constexpr bool kHasOffsets = kOffsets;
  // Vectors of scales of a block.
  static constexpr int kScaleVectors = 256 / kScale / 4;
};

template <class Unpacker, int /*kTokens*/>
using CodesFor = typename Unpacker::Codes;
template <class Codes>
using ProductCodes = Codes;
template <class Codes>
using ActivationCodes = CodeTraits<Codes::kScaleValues, true>;

struct WeightBlock {
  int8x16_t codes[16];
  float32x4_t scales[4];   // the first kScaleVectors of them
  float32x4_t offsets[4];  // the same, unused unless Codes::kHasOffsets
};

inline void ScaleBlock(WeightBlock& block, float factor) {
  for (float32x4_t& scales : block.scales) scales = vmulq_n_f32(scales, factor);
}

struct ActivationBlock {
  int8x16_t codes[16];
  float32x4_t scales[4];  // of the values that share a weight scale
  float32x4_t sums[4];    // scale * sum of the codes, of the same values
};

using Accumulator = float32x4_t;

inline Accumulator Zero() { return vdupq_n_f32(0.0f); }

// Neighbours, then the two pairs.
inline float Sum(Accumulator lanes) { return vaddvq_f32(lanes); }

// The sums of eight accumulators, each the bits of Sum().
inline void SumEight(const Accumulator* v, int64_t stride, float* out) {
  const float32x4_t ab = vpaddq_f32(v[0], v[stride]);
  const float32x4_t cd = vpaddq_f32(v[2 * stride], v[3 * stride]);
  const float32x4_t ef = vpaddq_f32(v[4 * stride], v[5 * stride]);
  const float32x4_t gh = vpaddq_f32(v[6 * stride], v[7 * stride]);
  vst1q_f32(out, vpaddq_f32(ab, cd));
  vst1q_f32(out + 4, vpaddq_f32(ef, gh));
}

// The four lanes of each of four vectors added.
[[gnu::always_inline]] inline int32x4_t SumsOfFour(int32x4_t a, int32x4_t b, int32x4_t c,
                                                   int32x4_t d) {
  return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

// The products of the values that share a scale, in four lanes.
template <class Codes>
[[gnu::always_inline]] inline int32x4_t DotScaled(const int8x16_t* w, const int8x16_t* x, int i) {
  constexpr int kVectors = Codes::kScaleValues / 16;
  const int32x4_t dot = vdotq_s32(vdupq_n_s32(0), w[kVectors * i], x[kVectors * i]);
  if constexpr (kVectors == 1) return dot;
  return vdotq_s32(dot, w[kVectors * i + 1], x[kVectors * i + 1]);
}

// sum + dots * scales - offsets * sums, for vector `v` of scales.
template <class Codes>
[[gnu::always_inline]] inline Accumulator AddScaled(const WeightBlock& weights,
                                                    const ActivationBlock& activations, int v,
                                                    int32x4_t dots, Accumulator sum) {
  const float32x4_t scales = vmulq_f32(weights.scales[v], activations.scales[v]);
  sum = vfmaq_f32(sum, vcvtq_f32_s32(dots), scales);
  if constexpr (!Codes::kHasOffsets) return sum;
  return vfmsq_f32(sum, weights.offsets[v], activations.sums[v]);
}

// sum + weights . activations
template <class Codes>
[[gnu::always_inline]] inline Accumulator MultiplyAddOne(const WeightBlock& weights,
                                                         const ActivationBlock& activations,
                                                         Accumulator sum) {
  const int8x16_t* w = weights.codes;
  const int8x16_t* x = activations.codes;
#pragma GCC unroll 4
  for (int v = 0; v < Codes::kScaleVectors; ++v) {
    const int32x4_t dots =
        SumsOfFour(DotScaled<Codes>(w, x, 4 * v), DotScaled<Codes>(w, x, 4 * v + 1),
                   DotScaled<Codes>(w, x, 4 * v + 2), DotScaled<Codes>(w, x, 4 * v + 3));
    sum = AddScaled<Codes>(weights, activations, v, dots, sum);
  }
  return sum;
}

// Stands between two tokens. Without it, compilers load the codes of several tokens at once, and
// then have no registers left for the sums.
[[gnu::always_inline]] inline void FinishTokens() { asm volatile("" ::: "memory"); }

// 256 activations: codes, eight scales, and the sums of sixteen groups or eight pairs of them.
template <class Codes>
[[gnu::always_inline]] inline ActivationBlock ArrangeBlock(const int8_t* codes, const float* scales,
                                                           const float* sums) {
  ActivationBlock block{};
  for (int i = 0; i < 16; ++i) block.codes[i] = vld1q_s8(codes + 16 * i);
  for (int v = 0; v < Codes::kScaleVectors; ++v) block.sums[v] = vld1q_f32(sums + 4 * v);
  for (int v = 0; v < 2; ++v) {
    const float32x4_t pairs = vld1q_f32(scales + 4 * v);
    if constexpr (Codes::kScaleValues == 32) {
      block.scales[v] = pairs;
    } else {
      block.scales[2 * v] = vzip1q_f32(pairs, pairs);
      block.scales[2 * v + 1] = vzip2q_f32(pairs, pairs);
    }
  }
  return block;
}

template <class Unpacker, int /*kTokens*/>
using UnpackerFor = Unpacker;

// Block `i` of a token; values from `cols` on are zero.
template <class Codes>
inline ActivationBlock PrepareBlock(const ActivationRow& row, int64_t cols, int64_t i) {
  constexpr int64_t kScaleValues = Codes::kScaleValues;
  const float* row_sums = kScaleValues == 32 ? row.pair_sums : row.sums;
  const int64_t begin = i * 256;
  const int64_t count = cols - begin;
  if (count >= 256) {
    return ArrangeBlock<Codes>(row.codes + begin, row.scales + begin / 32,
                               row_sums + begin / kScaleValues);
  }
  const size_t n = static_cast<size_t>(count);
  int8_t codes[256] = {};
  float scales[8] = {};
  float sums[16] = {};
  std::memcpy(codes, row.codes + begin, n);
  std::memcpy(scales, row.scales + begin / 32, n / 32 * sizeof(float));
  std::memcpy(sums, row_sums + begin / kScaleValues, n / kScaleValues * sizeof(float));
  return ArrangeBlock<Codes>(codes, scales, sums);
}
