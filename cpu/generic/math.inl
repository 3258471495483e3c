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

// x = n ln 2 + r with |r| <= ln 2 / 2; x becomes e^r by its Taylor series to r^7, whose remainder
// is below 2^-27. ln 2 is split so that n times the upper part is exact. Several vectors take each
// step together, because one alone would mostly wait for its own results.
template <int kCount>
inline void SplitExp(F32 (&x)[kCount], F32 (&n)[kCount]) {
  constexpr float kTaylor[] = {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f,
                               0.5f,          1.0f,          1.0f};
  F32 r[kCount];
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) n[v] = Round(Mul(x[v], Broadcast(0x1.715476p+0f)));  // log2(e)
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) {
    r[v] = NegMulAdd(n[v], Broadcast(0x1.62e4p-1f), x[v]);  // ln 2, 15 bits
  }
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) {
    r[v] = NegMulAdd(n[v], Broadcast(0x1.7f7d1cp-20f), r[v]);  // the rest of ln 2
    x[v] = Broadcast(1.0f / 5040.0f);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 7; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) x[v] = MulAdd(x[v], r[v], Broadcast(kTaylor[i]));
  }
}

// x = e^x within 2 ulp, for every x: infinity above 88.7, gradually 0 below -87.3, NaN for NaN.
struct FullExp {
  template <int kCount>
  void operator()(F32 (&x)[kCount]) const {
    F32 n[kCount];
    for (F32& lanes : x) lanes = Min(Broadcast(89.0f), Max(Broadcast(-105.0f), lanes));
    SplitExp(x, n);
    for (int v = 0; v < kCount; ++v) x[v] = ScaleByPowerOfTwo(x[v], n[v]);
  }
};
inline F32 Exp(F32 x) {
  F32 lanes[] = {x};
  FullExp()(lanes);
  return lanes[0];
}

// The same bits for x in [kExpNormalMin, 0] or NaN, in two thirds of the operations.
inline constexpr float kExpNormalMin = -86.5f;
struct NormalExp {
  template <int kCount>
  void operator()(F32 (&x)[kCount]) const {
    F32 n[kCount];
    SplitExp(x, n);
    for (int v = 0; v < kCount; ++v) x[v] = ScaleDownByPowerOfTwo(x[v], n[v]);
  }
};

// tanh(x) = 1 - 2 / (e^2x + 1), within 2^-21.
inline F32 Tanh(F32 x) {
  const F32 power = Exp(Add(x, x));
  return Sub(Broadcast(1.0f), Div(Broadcast(2.0f), Add(power, Broadcast(1.0f))));
}
