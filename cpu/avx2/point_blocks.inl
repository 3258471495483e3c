// Blocks of points of a grid for fewer than 64 tokens, as AVX2 and AVX-VNNI multiply them. Included
// inside the target region of matmul.cpp, after int8_blocks.inl and before prepare_blocks.inl.
//
// Points are loaded as they are, so that a vector holds whole ones, and are put where no sum has to
// cross from one half of a vector to the other (LaneOrder, int8_blocks.inl). Lanes belong to pairs
// 0 to 7 in plain order. The scales of a block are integers in units of one float, and what they
// multiply are integers, too: the sixteen groups of a block become eight floats.
//
// Signs lie beside the magnitudes, because it takes fewer steps to change the signs of activations
// than the signs of weights. The codes of IQ1 are the digits of ternary values, multiples of 8. In
// place of the signs IQ1 has the point's shift less 8, -7 or -9, and in place of the activations'
// biases their sums.

// Two words for a byte of signs, the lower of them at its even bytes: bit 2j of it at bit 2j + 1 of
// the lower byte, and bit 2j + 1 in its place in the upper byte. Shifted up so far that the bit is
// at the top a byte has the sign of a value; it is never zero.
struct SignWords {
  __m256i even;
  __m256i odd;

  explicit SignWords(__m256i bytes)
      : even(_mm256_or_si256(_mm256_add_epi8(bytes, bytes), _mm256_set1_epi8(1))),
        odd(_mm256_or_si256(bytes, _mm256_set1_epi8(1))) {}
};

// Factors that shift each pair of sign bits up, for the words of eight values in
// LaneOrder::kPoints.
[[gnu::always_inline]] inline __m256i ShiftEights() {
  return _mm256_set1_epi64x(0x0001000400100040);
}
// Factors for the words of the first and the last four values in LaneOrder::kQuads.
[[gnu::always_inline]] inline __m256i ShiftFours(int s) {
  return s % 2 == 0 ? _mm256_set1_epi32(0x00100040) : _mm256_set1_epi32(0x00010004);
}

// Word k of the four that belong to each 64-bit word in both halves, in all its words.
[[gnu::always_inline]] inline __m256i RepeatWord(__m256i words, int k) {
  const int64_t first = 0x0100010001000100 + 0x0202020202020202 * k;
  const int64_t second = first + 0x0808080808080808;
  return _mm256_shuffle_epi8(words, _mm256_setr_epi64x(first, second, first, second));
}

// Bytes with the signs of vector `i` of a block. In LaneOrder::kPoints signs[g] has the words of
// the eight values of vectors 4g to 4g + 3; in kQuads signs[0] those of bytes 0 and 2 of the signs
// of each pair, signs[1] of bytes 1 and 3.
template <class Codes>
[[gnu::always_inline]] inline __m256i SignsOf(const __m256i* signs, int i) {
  if constexpr (Codes::kOrder == LaneOrder::kPoints) {
    return _mm256_mullo_epi16(RepeatWord(signs[i / 4], i % 4), ShiftEights());
  } else {
    const int first = i / 4 * 2;
    const int32_t lane = (first + 1) << 8 | first | (first + 1) << 24 | first << 16;
    const __m256i from =
        _mm256_setr_epi32(lane, lane + 0x04040404, lane + 0x08080808, lane + 0x0c0c0c0c, lane,
                          lane + 0x04040404, lane + 0x08080808, lane + 0x0c0c0c0c);
    return _mm256_mullo_epi16(_mm256_shuffle_epi8(signs[i / 2 % 2], from), ShiftFours(i));
  }
}

// Calls made(token, activations) for each token to make the dot products of the two vectors from
// `i` on. The activations have the signs of the weights where signs lie apart.
template <class Codes, int kTokens, class Made>
[[gnu::always_inline]] inline void MultiplyTwo(const WeightBlock& weights,
                                               const ActivationBlock* activations, int i,
                                               Made made) {
  __m256i signs[2];
  if constexpr (Codes::kOrder != LaneOrder::kDigits) {
    for (int j = 0; j < 2; ++j) signs[j] = SignsOf<Codes>(weights.signs, i + j);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    __m256i x[2] = {activations[t].codes[i], activations[t].codes[i + 1]};
    if constexpr (Codes::kOrder != LaneOrder::kDigits) {
      for (int j = 0; j < 2; ++j) x[j] = _mm256_sign_epi8(x[j], signs[j]);
    }
    made(t, x);
  }
}

// dots[t] = the dot products of the pairs with token t.
template <class Codes, int kTokens>
  requires(Codes::kOrder == LaneOrder::kQuads)
[[gnu::always_inline]] inline void DotPoints(const WeightBlock& weights,
                                             const ActivationBlock* activations, __m256i* dots) {
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    MultiplyTwo<Codes, kTokens>(
        weights, activations, i, [&](int t, const __m256i* x) __attribute__((always_inline)) {
          const __m256i dot = DotTwo<Codes>(weights.codes + i, x);
          dots[t] = i == 0 ? dot : _mm256_add_epi32(dots[t], dot);
        });
  }
}

// dots[t] = the dot products of the pairs with token t, for points of eight values; the dot product
// of each group is multiplied by the group's factor.
template <class Codes, int kTokens>
  requires(Codes::kOrder == LaneOrder::kPoints || Codes::kOrder == LaneOrder::kDigits)
[[gnu::always_inline]] inline void DotPoints(const WeightBlock& weights,
                                             const ActivationBlock* activations, __m256i* dots) {
  __m256i groups[2][kTokens];
#pragma GCC unroll 2
  for (int g = 0; g < 2; ++g) {
    const __m256i factors = weights.factors[g];
#pragma GCC unroll 2
    for (int e = 0; e < 2; ++e) {
      // The factor of the first (e = 0) or the second group of each pair, in both lanes of the
      // pair.
      const __m256i both =
          e == 0 ? _mm256_shuffle_epi32(factors, 0xa0) : _mm256_shuffle_epi32(factors, 0xf5);
      const int i = 4 * g + 2 * e;
      MultiplyTwo<Codes, kTokens>(
          weights, activations, i, [&](int t, const __m256i* x) __attribute__((always_inline)) {
            const __m256i dot = DotTwo<Codes>(weights.codes + i, x, both);
            groups[g][t] = e == 0 ? dot : _mm256_add_epi32(groups[g][t], dot);
          });
    }
    if constexpr (Codes::kOrder == LaneOrder::kDigits) {
      const __m256i shifts = _mm256_mullo_epi16(weights.signs[g], factors);
      for (int t = 0; t < kTokens; ++t) {
        groups[g][t] = _mm256_add_epi32(_mm256_slli_epi32(groups[g][t], 3),
                                        _mm256_madd_epi16(activations[t].bias[g], shifts));
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    dots[t] = _mm256_add_epi32(EvenLanes(groups[0][t], groups[1][t]),
                               OddLanes(groups[0][t], groups[1][t]));
  }
}

// sums[t] += weights . activations[t]
template <class Codes, int kTokens>
  requires(HoldsPoints(Codes::kOrder))
[[gnu::always_inline]] inline void MultiplyAdd(const WeightBlock& weights,
                                               const ActivationBlock* activations,
                                               Accumulator* sums) {
  __m256i dots[kTokens];
  DotPoints<Codes, kTokens>(weights, activations, dots);
  __m256 unit;
  if constexpr (Codes::kOrder == LaneOrder::kQuads) {
    unit = weights.scales[0];
  } else {
    unit = _mm256_set1_ps(weights.unit);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    const __m256 scales = _mm256_mul_ps(unit, activations[t].scales[0]);
    sums[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[t]), scales, sums[t]);
  }
}

// The four vectors of points 4g to 4g + 3 in LaneOrder::kPoints, from the 32 values of each pair.
[[gnu::always_inline]] inline void GatherPoints(const __m256i* pairs, int g, __m256i* out) {
  const __m256i* v = pairs + 2 * g;
  const __m256i a = _mm256_loadu_si256(v), b = _mm256_loadu_si256(v + 1);
  const __m256i c = _mm256_loadu_si256(v + 4), d = _mm256_loadu_si256(v + 5);
  const __m256i lower_even = _mm256_unpacklo_epi64(a, b);
  const __m256i lower_odd = _mm256_unpackhi_epi64(a, b);
  const __m256i upper_even = _mm256_unpacklo_epi64(c, d);
  const __m256i upper_odd = _mm256_unpackhi_epi64(c, d);
  out[0] = JoinLower(lower_even, upper_even);
  out[1] = JoinLower(lower_odd, upper_odd);
  out[2] = JoinUpper(lower_even, upper_even);
  out[3] = JoinUpper(lower_odd, upper_odd);
}

// The sums of the eight values of each word in the four vectors of some points, as 16-bit words in
// the order of points.
[[gnu::always_inline]] inline __m256i SumPoints(const __m256i* v) {
  const __m256i ones = _mm256_set1_epi8(1);
  const __m256i first =
      _mm256_hadd_epi16(_mm256_maddubs_epi16(ones, v[0]), _mm256_maddubs_epi16(ones, v[1]));
  const __m256i last =
      _mm256_hadd_epi16(_mm256_maddubs_epi16(ones, v[2]), _mm256_maddubs_epi16(ones, v[3]));
  const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  return _mm256_shuffle_epi8(_mm256_hadd_epi16(first, last), _mm256_broadcastsi128_si256(order));
}

template <class Codes>
  requires(HoldsPoints(Codes::kOrder))
[[gnu::always_inline]] inline ActivationBlock ArrangeBlock(const ActivationRow& row) {
  ActivationBlock block;
  const __m256i* pairs = reinterpret_cast<const __m256i*>(row.codes);
  if constexpr (Codes::kOrder == LaneOrder::kQuads) {
    for (int i = 0; i < 8; ++i) block.codes[i] = _mm256_loadu_si256(pairs + i);
    TransposeLanes(block.codes);
  } else {
    for (int g = 0; g < 2; ++g) {
      GatherPoints(pairs, g, block.codes + 4 * g);
      block.bias[g] = SumPoints(block.codes + 4 * g);
    }
  }
  block.scales[0] = _mm256_loadu_ps(row.scales);
  return block;
}
