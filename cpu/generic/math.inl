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

// What is added to a float, and taken off again, to round it to a whole number if it is below 2^22.
inline constexpr float kRoundingShift = 0x1.8p23f;

// x = n ln 2 + r with |r| <= ln 2 / 2, a little more where x log2(e) lies between two whole
// numbers; x becomes e^r. The polynomial is 1 + r + r^2 q(r), q of degree 4 with the least largest
// relative error (Remez): 2^-28.3. ln 2 is split so that n times the upper part is exact. Several
// vectors take each step together, because one alone would mostly wait for its own results.
template <int kCount>
inline void SplitExp(F32 (&x)[kCount], F32 (&n)[kCount]) {
  constexpr float kCoefficients[] = {0x1.1239f2p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f,
                                     0x1.fffffcp-2f, 1.0f,           1.0f};
  const F32 shift = Broadcast(kRoundingShift);
  F32 r[kCount];
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) {
    n[v] = Sub(MulAdd(x[v], Broadcast(0x1.715476p+0f), shift), shift);  // log2(e)
  }
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) {
    r[v] = NegMulAdd(n[v], Broadcast(0x1.62e4p-1f), x[v]);  // ln 2, 15 bits
  }
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) {
    r[v] = NegMulAdd(n[v], Broadcast(0x1.7f7d1cp-20f), r[v]);  // the rest of ln 2
    x[v] = Broadcast(0x1.6a2412p-10f);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 6; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) x[v] = MulAdd(x[v], r[v], Broadcast(kCoefficients[i]));
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
