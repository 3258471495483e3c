// Products of codes with activations in AVX2. Included inside the target region of matmul.cpp.
//
// VPMADDUBSW adds two products of an unsigned and a signed byte in 16 bits, with saturation. How
// codes are stored depends on their largest value, so that saturation never happens:
//   kCodeMax <= 31   unsigned (code + kBias); four vectors are added in 16 bits: 4 * 2 * 31 * 127
//   kCodeMax <= 63   unsigned; two vectors are added in 16 bits: 2 * 2 * 63 * 127
//   kCodeMax <= 127  unsigned; the two products alone: 2 * 127 * 127
//   otherwise        signed, kBias = 0; |weight| times (activation with the weight's sign):
//                    2 * 128 * 127

constexpr int kSignedBias = 0;
// The largest code that is multiplied like one of `code_max`.
constexpr int ProductCodeMax(int code_max) {
  return code_max <= 15    ? 15
         : code_max <= 31  ? 31
         : code_max <= 63  ? 63
         : code_max <= 127 ? 127
                           : 128;
}
inline __m256i StoreSigned(__m256i codes) { return codes; }

// Sums of 16-bit pairs as 32 bits.
[[gnu::always_inline]] inline __m256i AddPairs(__m256i pairs) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// The sum of four vectors' products.
template <class Codes>
[[gnu::always_inline]] inline __m256i SumProducts(const __m256i* w, const __m256i* x) {
  if constexpr (Codes::kCodeMax <= 63) {
    const __m256i p01 =
        _mm256_add_epi16(_mm256_maddubs_epi16(w[0], x[0]), _mm256_maddubs_epi16(w[1], x[1]));
    const __m256i p23 =
        _mm256_add_epi16(_mm256_maddubs_epi16(w[2], x[2]), _mm256_maddubs_epi16(w[3], x[3]));
    if constexpr (Codes::kCodeMax <= 31) return AddPairs(_mm256_add_epi16(p01, p23));
    return _mm256_add_epi32(AddPairs(p01), AddPairs(p23));
  } else if constexpr (Codes::kCodeMax <= 127) {
    const __m256i d01 = _mm256_add_epi32(AddPairs(_mm256_maddubs_epi16(w[0], x[0])),
                                         AddPairs(_mm256_maddubs_epi16(w[1], x[1])));
    const __m256i d23 = _mm256_add_epi32(AddPairs(_mm256_maddubs_epi16(w[2], x[2])),
                                         AddPairs(_mm256_maddubs_epi16(w[3], x[3])));
    return _mm256_add_epi32(d01, d23);
  } else {
    static_assert(Codes::kBias == 0);
    __m256i dot = _mm256_setzero_si256();
    for (int s = 0; s < 4; ++s) {
      const __m256i products =
          _mm256_maddubs_epi16(_mm256_abs_epi8(w[s]), _mm256_sign_epi8(x[s], w[s]));
      dot = _mm256_add_epi32(dot, AddPairs(products));
    }
    return dot;
  }
}

// SumTwo adds the products of two vectors, four products in each 16-bit lane; AddSums adds two such
// sums, WidenSums adds neighbouring lanes to sums of 32 bits.
constexpr bool kWideSums = false;
template <class Codes>
[[gnu::always_inline]] inline __m256i SumTwo(const __m256i* w, const __m256i* x) {
  static_assert(8 * 127 * Codes::kCodeMax <= INT16_MAX);
  return _mm256_add_epi16(_mm256_maddubs_epi16(w[0], x[0]), _mm256_maddubs_epi16(w[1], x[1]));
}
inline __m256i AddSums(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
inline __m256i WidenSums(__m256i sums) { return AddPairs(sums); }

// The integer dot products of eight groups, four vectors each; bias is what the codes' bias takes.
template <class Codes>
[[gnu::always_inline]] inline __m256i DotGroups(const __m256i* w, const __m256i* x, __m256i bias) {
  const __m256i dot = SumProducts<Codes>(w, x);
  return Codes::kBias == 0 ? dot : _mm256_add_epi32(dot, bias);
}

// The integer dot products of eight pairs of groups, eight vectors each.
template <class Codes>
[[gnu::always_inline]] inline __m256i DotPairLanes(const __m256i* w, const __m256i* x,
                                                   __m256i bias) {
  __m256i dot;
  if constexpr (16 * 127 * Codes::kCodeMax <= INT16_MAX) {
    const __m256i low = AddSums(SumTwo<Codes>(w, x), SumTwo<Codes>(w + 2, x + 2));
    const __m256i high = AddSums(SumTwo<Codes>(w + 4, x + 4), SumTwo<Codes>(w + 6, x + 6));
    dot = WidenSums(AddSums(low, high));
  } else {
    dot = _mm256_add_epi32(SumProducts<Codes>(w, x), SumProducts<Codes>(w + 4, x + 4));
  }
  return Codes::kBias == 0 ? dot : _mm256_add_epi32(dot, bias);
}

// The products of two vectors of codes of at most 63, in 32 bits; and times factors, which lie in
// both words of the lanes.
template <class Codes>
[[gnu::always_inline]] inline __m256i DotTwo(const __m256i* w, const __m256i* x, __m256i factors) {
  static_assert(Codes::kCodeMax <= 63);
  const __m256i pairs =
      _mm256_add_epi16(_mm256_maddubs_epi16(w[0], x[0]), _mm256_maddubs_epi16(w[1], x[1]));
  return _mm256_madd_epi16(pairs, factors);
}
template <class Codes>
[[gnu::always_inline]] inline __m256i DotTwo(const __m256i* w, const __m256i* x) {
  return DotTwo<Codes>(w, x, _mm256_set1_epi16(1));
}

// The number of tokens from which on a transposition of the weights into LaneOrder::kPairLanes
// pays.
constexpr int kPairLanesFrom = 8;
