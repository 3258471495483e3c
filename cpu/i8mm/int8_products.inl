// The products of a block of weights with blocks of activations, two rows and two tokens at a time.
// Included inside the target region of matmul.cpp, after cpu/neon/int8_blocks.inl.
//
// SMMLA multiplies two rows of eight bytes with two others and adds the four sums to the four lanes
// of its result, twice the products of SDOT. The codes of two tokens lie interleaved, eight columns
// of one beside eight of the other, once they have passed PairTokens; the codes of two rows are
// interleaved when they meet the tokens. The integers and the operations on them are those of
// cpu/neon, so the bits are too.

// From 16 columns of row a and of row b: columns 0 to 7 of a and then of b go to `a`, columns 8 to
// 15 of both to `b`.
[[gnu::always_inline]] inline void PairCodes(int8x16_t& a, int8x16_t& b) {
  const int64x2_t first = vreinterpretq_s64_s8(a);
  const int64x2_t second = vreinterpretq_s64_s8(b);
  a = vreinterpretq_s8_s64(vzip1q_s64(first, second));
  b = vreinterpretq_s8_s64(vzip2q_s64(first, second));
}

// Interleaves the codes of a block of `tokens` tokens by pairs; the block of a single token stays
// as it is.
inline void PairTokens(ActivationBlock* blocks, int64_t tokens) {
  for (int64_t t = 0; t + 2 <= tokens; t += 2) {
    for (int k = 0; k < 16; ++k) PairCodes(blocks[t].codes[k], blocks[t + 1].codes[k]);
  }
}

// Products of rows a and b with tokens x and y: lane i belongs to scale i of a vector of scales.
struct PairDots {
  int32x4_t ax, ay, bx, by;
};

// From four vectors with the lanes ax, ay, bx, by.
[[gnu::always_inline]] inline PairDots TransposeDots(int32x4_t d0, int32x4_t d1, int32x4_t d2,
                                                     int32x4_t d3) {
  const int64x2_t a01 = vreinterpretq_s64_s32(vzip1q_s32(d0, d1));
  const int64x2_t b01 = vreinterpretq_s64_s32(vzip2q_s32(d0, d1));
  const int64x2_t a23 = vreinterpretq_s64_s32(vzip1q_s32(d2, d3));
  const int64x2_t b23 = vreinterpretq_s64_s32(vzip2q_s32(d2, d3));
  return {vreinterpretq_s32_s64(vzip1q_s64(a01, a23)), vreinterpretq_s32_s64(vzip2q_s64(a01, a23)),
          vreinterpretq_s32_s64(vzip1q_s64(b01, b23)), vreinterpretq_s32_s64(vzip2q_s64(b01, b23))};
}

// The products of the values that share a scale: kVectors vectors of 16 columns, interleaved.
template <int kVectors>
[[gnu::always_inline]] inline int32x4_t DotPairs(const int8x16_t* low, const int8x16_t* high,
                                                 const int8x16_t* x, const int8x16_t* y) {
  int32x4_t dot = vdupq_n_s32(0);
#pragma GCC unroll 2
  for (int k = 0; k < kVectors; ++k) {
    dot = vmmlaq_s32(dot, low[k], x[k]);
    dot = vmmlaq_s32(dot, high[k], y[k]);
  }
  return dot;
}

// sums_a[t] += a . tokens[t], sums_b[t] += b . tokens[t]
template <class Codes, int kTokens>
[[gnu::always_inline]] inline void MultiplyAddPair(const WeightBlock& a, const WeightBlock& b,
                                                   const ActivationBlock* tokens,
                                                   Accumulator* sums_a, Accumulator* sums_b) {
  if constexpr (kTokens == 1) {
    *sums_a = MultiplyAddOne<Codes>(a, *tokens, *sums_a);
    *sums_b = MultiplyAddOne<Codes>(b, *tokens, *sums_b);
    return;
  }
  constexpr int kVectors = Codes::kScaleValues / 16;
#pragma GCC unroll 4
  for (int v = 0; v < Codes::kScaleVectors; ++v) {
    int8x16_t low[4 * kVectors];
    int8x16_t high[4 * kVectors];
#pragma GCC unroll 8
    for (int k = 0; k < 4 * kVectors; ++k) {
      low[k] = a.codes[4 * kVectors * v + k];
      high[k] = b.codes[4 * kVectors * v + k];
      PairCodes(low[k], high[k]);
    }
#pragma GCC unroll 4
    for (int t = 0; t + 2 <= kTokens; t += 2) {
      const int8x16_t* x = tokens[t].codes + 4 * kVectors * v;
      const int8x16_t* y = tokens[t + 1].codes + 4 * kVectors * v;
      int32x4_t dots[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int at = kVectors * i;
        dots[i] = DotPairs<kVectors>(low + at, high + at, x + at, y + at);
      }
      const PairDots pairs = TransposeDots(dots[0], dots[1], dots[2], dots[3]);
      sums_a[t] = AddScaled<Codes>(a, tokens[t], v, pairs.ax, sums_a[t]);
      sums_a[t + 1] = AddScaled<Codes>(a, tokens[t + 1], v, pairs.ay, sums_a[t + 1]);
      sums_b[t] = AddScaled<Codes>(b, tokens[t], v, pairs.bx, sums_b[t]);
      sums_b[t + 1] = AddScaled<Codes>(b, tokens[t + 1], v, pairs.by, sums_b[t + 1]);
      FinishTokens();
    }
  }
}

// sums[t] += weights . tokens[t]; a row without a second one is its own.
template <class Codes, int kTokens>
[[gnu::always_inline]] inline void MultiplyAdd(const WeightBlock& weights,
                                               const ActivationBlock* tokens, Accumulator* sums) {
  Accumulator unused[kTokens];
  for (Accumulator& sum : unused) sum = Zero();
  if constexpr (kTokens == 1) {
    *sums = MultiplyAddOne<Codes>(weights, *tokens, *sums);
  } else {
    MultiplyAddPair<Codes, kTokens>(weights, weights, tokens, sums, unused);
  }
}

constexpr int kRowsAtOnce = 2;
constexpr int kStreams = 1;
constexpr int kPairTokens = 8;
constexpr int kHeldTokens = 8;
constexpr bool kCountTokens = false;
