// exp and log whose bits are the same on every machine.
//
// The C library's versions differ in the last bit between systems and between processors, and one
// bit can decide which token is drawn. These use only operations that IEEE 754 defines exactly
// (addition, multiplication, division, scaling by powers of two, rounding to integers), in a fixed
// order, in double. Both are within 2 units in the last place of the exact value.
#pragma once

#include <algorithm>
#include <limits>
#include <span>

namespace kvant {

// e^x; 0 below -708 (where doubles become subnormal), infinity above 709; NaN for NaN.
double PortableExp(double x);

// Weights are summed as integers, so that their sum does not depend on the order; with 2^40 for the
// likeliest token it stays below 2^64 for any vocabulary of up to 2^24 tokens.
inline constexpr double kWeightOne = 0x1p40;

// The logit of a token that cannot be drawn.
inline constexpr float kLogitNone = -std::numeric_limits<float>::infinity();

// `logit` with NaN as kLogitNone and infinity as the largest float.
inline float Sanitize(float logit) {
  if (logit != logit) return kLogitNone;
  return std::min(logit, std::numeric_limits<float>::max());
}

// to[i] = Sanitize(from[i]); both have one size.
void SanitizeRow(std::span<const float> from, std::span<float> to);

// The natural logarithm of a positive, finite, normal x; -infinity for 0. Other arguments give NaN.
double PortableLog(double x);

// Each value becomes the PortableExp of value / divisor, bit for bit; quotients from -700 to 0.
void PortableExps(std::span<double> values, double divisor = 1);

// Each value becomes its PortableLog, bit for bit; positive, finite, normal values.
void PortableLogs(std::span<double> values);

// x^y for x >= 0 as e^(y log x), to about 1e-14 of the value while that is below 1e6; 0^0 is 1, and
// 0 to another power is taken as 0. NaN for a negative x.
double PortablePower(double x, double y);

}  // namespace kvant
