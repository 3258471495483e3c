// Vector mathematics shared by the generic kernels: the exponential, its kin and the sum of lanes.
//
// Included inside an instruction set's namespace and target region, after its simd.inl. They are
// defined so that every instruction set (and cpu/scalar, which repeats them in plain code) gives
// the same bits.

// Sums are kept in sixteen lanes, lane = index % 16, whatever the vector width.
inline constexpr int kSumLanes = 16;
inline constexpr int kSumVectors = kSumLanes / kLanes;

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t Greatest(int64_t a, int64_t b) { return a > b ? a : b; }

// The sum of sixteen lanes by halves: i + (i + 8), then i + (i + 4), ...
inline float SumLanes(const F32 (&vectors)[kSumVectors]) {
  F32 sums[kSumVectors];
  for (int v = 0; v < kSumVectors; ++v) sums[v] = vectors[v];
  for (int half = kSumVectors / 2; half > 0; half /= 2) {
    for (int v = 0; v < half; ++v) sums[v] = Add(sums[v], sums[v + half]);
  }
  return SumByHalves(sums[0]);
}

// e^x within 2 ulp, for every x: infinity above 88.7, gradually 0 below -87.3, NaN for NaN.
//
// x = n ln 2 + r with |r| <= ln 2 / 2, then e^r by its Taylor series to r^7, whose remainder is
// below 2^-27. ln 2 is split so that n times the upper part is exact.
inline F32 Exp(F32 x) {
  const F32 bounded = Min(Broadcast(89.0f), Max(Broadcast(-105.0f), x));
  const F32 n = Round(Mul(bounded, Broadcast(0x1.715476p+0f)));  // x log2(e)
  F32 r = NegMulAdd(n, Broadcast(0x1.62e4p-1f), bounded);        // ln 2, 15 bits
  r = NegMulAdd(n, Broadcast(0x1.7f7d1cp-20f), r);               // the rest of ln 2
  F32 sum = Broadcast(1.0f / 5040.0f);
  sum = MulAdd(sum, r, Broadcast(1.0f / 720.0f));
  sum = MulAdd(sum, r, Broadcast(1.0f / 120.0f));
  sum = MulAdd(sum, r, Broadcast(1.0f / 24.0f));
  sum = MulAdd(sum, r, Broadcast(1.0f / 6.0f));
  sum = MulAdd(sum, r, Broadcast(0.5f));
  sum = MulAdd(sum, r, Broadcast(1.0f));
  sum = MulAdd(sum, r, Broadcast(1.0f));
  return ScaleByPowerOfTwo(sum, n);
}

// tanh(x) = 1 - 2 / (e^2x + 1), within 2^-21.
inline F32 Tanh(F32 x) {
  const F32 power = Exp(Add(x, x));
  return Sub(Broadcast(1.0f), Div(Broadcast(2.0f), Add(power, Broadcast(1.0f))));
}
