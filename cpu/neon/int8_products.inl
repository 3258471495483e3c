// The products of a block of weights with blocks of activations, token by token. Included inside
// the target region of matmul.cpp, after int8_blocks.inl.

// sums[t] += weights . activations[t]
template <class Codes, int kTokens>
[[gnu::always_inline]] inline void MultiplyAdd(const WeightBlock& weights,
                                               const ActivationBlock* activations,
                                               Accumulator* sums) {
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    sums[t] = MultiplyAddOne<Codes>(weights, activations[t], sums[t]);
    FinishTokens();
  }
}

// One row only: its codes take 16 of the 32 registers; scales, activations and sums take the rest.
constexpr int kRowsAtOnce = 1;
constexpr int kStreams = 1;
constexpr int kPairTokens = 0;
constexpr int kHeldTokens = 8;
constexpr bool kCountTokens = false;
