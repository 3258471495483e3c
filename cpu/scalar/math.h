// The exponential, its kin and the sum of lanes of cpu/generic/math.inl in plain code, with the
// same bits.
#pragma once

#include <algorithm>
#include <cmath>

namespace kvant::cpu::scalar {

inline constexpr float kLog2E = 0x1.715476p+0f;

// Sums are kept in sixteen lanes, lane = index % 16.
inline constexpr int kSumLanes = 16;

// By halves: i + (i + 8), then i + (i + 4), ...
inline float SumLanes(float (&lanes)[kSumLanes]) {
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// e^x within 2 ulp: x = n ln 2 + r, then e^r by the polynomial of cpu/generic/math.inl.
inline float Exp(float x) {
  if (std::isnan(x)) return x;
  const float bounded = std::clamp(x, -105.0f, 89.0f);
  const float n = std::fma(bounded, kLog2E, 0x1.8p23f) - 0x1.8p23f;  // x log2(e), rounded
  float r = std::fma(-n, 0x1.62e4p-1f, bounded);                     // ln 2, 15 bits
  r = std::fma(-n, 0x1.7f7d1cp-20f, r);                              // the rest of ln 2
  constexpr float kCoefficients[] = {0x1.1239f2p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f,
                                     0x1.fffffcp-2f, 1.0f,           1.0f};
  float sum = 0x1.6a2412p-10f;
  for (const float coefficient : kCoefficients) sum = std::fma(sum, r, coefficient);
  return std::ldexp(sum, static_cast<int>(n));
}

// 2^((x - base) * factor) as Exp2 of cpu/generic/math.inl, with the same coefficients.
template <int kErrorBits>
inline float Exp2(float x, float base, float factor) {
  static_assert(kErrorBits == 28 || kErrorBits == 18);
  const float difference = x - base;
  const float n = std::fma(difference, factor, 0x1.8p23f) - 0x1.8p23f;
  if (std::isnan(n)) return n;
  if (n < -125.0f) return 0.0f;
  const float r = std::fma(difference, factor, -n);
  float sum = 0.0f;
  if constexpr (kErrorBits == 28) {
    for (const float coefficient : {0x1.417a2cp-13f, 0x1.5f094ap-10f, 0x1.3b2dd2p-7f,
                                    0x1.c6af7ap-5f, 0x1.ebfbdcp-3f, 0x1.62e430p-1f, 1.0f}) {
      sum = std::fma(sum, r, coefficient);
    }
  } else {
    for (const float coefficient :
         {0x1.408baap-7f, 0x1.ca9018p-5f, 0x1.ebf1b4p-3f, 0x1.62dfc8p-1f, 1.0f}) {
      sum = std::fma(sum, r, coefficient);
    }
  }
  return std::ldexp(sum, static_cast<int>(n));
}

// Within 2^-21.
inline float Tanh(float x) { return 1.0f - 2.0f / (Exp(x + x) + 1.0f); }

}  // namespace kvant::cpu::scalar
