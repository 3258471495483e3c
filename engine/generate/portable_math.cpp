#include "engine/generate/portable_math.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "cpu/portable_series.h"

namespace kvant {
namespace {

// 2^exponent for a normal result.
double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

}  // namespace

double PortableExp(double x) {
  if (x != x) return x;
  if (x < -708.0) return 0.0;
  if (x > 709.0) return std::numeric_limits<double>::infinity();
  const double scaled = std::floor(x * kLog2E + 0.5);
  const double r = (x - scaled * kLn2High) - scaled * kLn2Low;
  double sum = 0.0;
  for (size_t i = kExpTerms + 1; i-- > 0;) sum = sum * r + kInverseFactorials[i];
  const int exponent = static_cast<int>(scaled);
  // The power is multiplied in two steps, since 2^1024 is no double although e^709 is.
  return sum * PowerOfTwo(exponent / 2) * PowerOfTwo(exponent - exponent / 2);
}

double PortableLog(double x) {
  if (x == 0.0) return -std::numeric_limits<double>::infinity();
  if (!(x >= std::numeric_limits<double>::min()) || x > std::numeric_limits<double>::max()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1022;
  // The mantissa in [0.5, 1), then in [sqrt(1/2), sqrt(2)).
  double m = std::bit_cast<double>((bits & kMantissaBits) | kHalfExponent);
  if (m < kSqrtHalf) {
    m *= 2.0;
    --exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 0.0;  // of s2^i / (2i + 1), i >= 1
  for (size_t i = kLogTerms; i >= 1; --i) sum = (sum + kInverseOdds[i]) * s2;
  const double log_m = 2.0 * s + 2.0 * s * sum;
  return exponent * kLn2High + (exponent * kLn2Low + log_m);
}

double PortablePower(double x, double y) {
  if (x == 0) return y == 0 ? 1 : 0;
  return PortableExp(y * PortableLog(x));
}

}  // namespace kvant
