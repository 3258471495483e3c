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

// Added to a float below 2^22 and subtracted again, this number rounds the float to a whole number.
inline constexpr float kRoundingShift = 0x1.8p23f;

inline constexpr float kLog2E = 0x1.715476p+0f;

// e^x within 2 ulp, for every x: infinity above 88.7, gradually 0 below -87.3, NaN for NaN. x is
// n ln 2 + r with |r| <= ln 2 / 2, a little more where x log2(e) lies between two whole numbers.
// The polynomial is 1 + r + r^2 q(r), q of degree 4 with the least largest relative error (Remez):
// 2^-28.3. ln 2 is split so that n times the upper part is exact.
inline F32 Exp(F32 x) {
  constexpr float kCoefficients[] = {0x1.1239f2p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f,
                                     0x1.fffffcp-2f, 1.0f,           1.0f};
  const F32 shift = Broadcast(kRoundingShift);
  x = Min(Broadcast(89.0f), Max(Broadcast(-105.0f), x));
  const F32 n = Sub(MulAdd(x, Broadcast(kLog2E), shift), shift);
  F32 r = NegMulAdd(n, Broadcast(0x1.62e4p-1f), x);  // ln 2, 15 bits
  r = NegMulAdd(n, Broadcast(0x1.7f7d1cp-20f), r);   // the rest of ln 2
  F32 power = Broadcast(0x1.6a2412p-10f);
#pragma GCC unroll 8
  for (const float coefficient : kCoefficients) power = MulAdd(power, r, Broadcast(coefficient));
  return ScaleByPowerOfTwo(power, n);
}

// 2^r for |r| <= 1/2 as a polynomial 1 + r q(r) with the least largest relative error (Remez), the
// coefficients from the highest on. kErrorBits: that error, rounded coefficients included, is below
// 2^-kErrorBits.
template <int kErrorBits>
inline constexpr auto kExp2Coefficients = std::array<float, 0>();
template <>
inline constexpr std::array kExp2Coefficients<28> = {0x1.417a2cp-13f,
                                                     0x1.5f094ap-10f,
                                                     0x1.3b2dd2p-7f,
                                                     0x1.c6af7ap-5f,
                                                     0x1.ebfbdcp-3f,
                                                     0x1.62e430p-1f,
                                                     1.0f};
template <>
inline constexpr std::array kExp2Coefficients<18> = {0x1.408baap-7f, 0x1.ca9018p-5f, 0x1.ebf1b4p-3f,
                                                     0x1.62dfc8p-1f, 1.0f};

// Exponents of 2, relative to a largest one: (x - base) * factor, at most 1/2.
struct Exponents {
  F32 base;
  F32 factor;
};

// x = 2^((x - base) * factor), 1 for the base itself, NaN for NaN; 0 below 2^-125.5, because
// subnormal numbers, which no sum of weights feels, take many CPUs a hundred cycles each. The
// exponent is n + r, n whole and |r| <= 1/2. Several vectors take each step together, because one
// alone would mostly wait for its own results.
template <int kErrorBits, int kCount>
inline void Exp2(Exponents exponents, F32 (&x)[kCount]) {
  constexpr auto& kCoefficients = kExp2Coefficients<kErrorBits>;
  constexpr size_t kDegree = kCoefficients.size() - 1;
  const F32 shift = Broadcast(kRoundingShift);
  F32 n[kCount];
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) {
    x[v] = Sub(x[v], exponents.base);
    n[v] = Sub(MulAdd(x[v], exponents.factor, shift), shift);
  }
  F32 power[kCount];
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) {
    x[v] = MulSub(x[v], exponents.factor, n[v]);
    power[v] = Broadcast(kCoefficients[0]);
  }
#pragma GCC unroll 8
  for (size_t i = 1; i <= kDegree; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) power[v] = MulAdd(power[v], x[v], Broadcast(kCoefficients[i]));
  }
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) x[v] = ScaleUnlessTiny(power[v], n[v]);
}

// tanh(x) = 1 - 2 / (e^2x + 1), within 2^-21.
inline F32 Tanh(F32 x) {
  const F32 power = Exp(Add(x, x));
  return Sub(Broadcast(1.0f), Div(Broadcast(2.0f), Add(power, Broadcast(1.0f))));
}
