// Products of codes with activations in AVX-VNNI. Included inside the target region of matmul.cpp,
// after vpdpbusd.inl.
//
// VPDPBUSD adds four products of unsigned with signed bytes to a lane, without saturation. All
// codes are stored unsigned (code + kBias), those with a sign as code + 128.

constexpr int kSignedBias = 128;
// The largest code that is multiplied like one of `code_max`.
constexpr int ProductCodeMax(int /*code_max*/) { return 128; }
inline __m256i StoreSigned(__m256i codes) {
  return _mm256_xor_si256(codes, _mm256_set1_epi8(static_cast<char>(0x80)));
}

// In assembly because GCC 12 copies the sums of the intrinsic to other registers and back.
inline void AddProducts(__m256i unsigned_bytes, __m256i signed_bytes, __m256i& sums) {
  asm(KVANT_VPDPBUSD "%2, %1, %0" : "+x"(sums) : "x"(unsigned_bytes), "x"(signed_bytes));
}

// Sums of 16-bit pairs as 32 bits.
[[gnu::always_inline]] inline __m256i AddPairs(__m256i pairs) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// SumTwo adds the products of two vectors, eight products in each 32-bit lane; AddSums adds two
// such sums.
constexpr bool kWideSums = true;
template <class Codes>
[[gnu::always_inline]] inline __m256i SumTwo(const __m256i* w, const __m256i* x) {
  __m256i sums = _mm256_setzero_si256();
  AddProducts(w[0], x[0], sums);
  AddProducts(w[1], x[1], sums);
  return sums;
}
inline __m256i AddSums(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
inline __m256i WidenSums(__m256i sums) { return sums; }

// The integer dot products of eight groups, four vectors each; bias is what the codes' bias takes.
template <class Codes>
[[gnu::always_inline]] inline __m256i DotGroups(const __m256i* w, const __m256i* x, __m256i bias) {
  __m256i dot = Codes::kBias == 0 ? _mm256_setzero_si256() : bias;
  for (int s = 0; s < 4; ++s) AddProducts(w[s], x[s], dot);
  return dot;
}

// The integer dot products of eight pairs of groups, eight vectors each.
template <class Codes>
[[gnu::always_inline]] inline __m256i DotPairLanes(const __m256i* w, const __m256i* x,
                                                   __m256i bias) {
  __m256i high = _mm256_setzero_si256();
  for (int s = 4; s < 8; ++s) AddProducts(w[s], x[s], high);
  return _mm256_add_epi32(DotGroups<Codes>(w, x, bias), high);
}

// The products of two vectors of codes in 32 bits; and times factors, which lie in both words of
// the lanes.
template <class Codes>
[[gnu::always_inline]] inline __m256i DotTwo(const __m256i* w, const __m256i* x) {
  return SumTwo<Codes>(w, x);
}
template <class Codes>
[[gnu::always_inline]] inline __m256i DotTwo(const __m256i* w, const __m256i* x, __m256i factors) {
  const __m256i lower = _mm256_and_si256(factors, _mm256_set1_epi32(0xffff));
  return _mm256_mullo_epi32(SumTwo<Codes>(w, x), lower);
}

// The number of tokens from which on a transposition of the weights into LaneOrder::kPairLanes
// pays.
constexpr int kPairLanesFrom = 4;
