// The constants of PortableExp and PortableLog: exp by reduction to |r| <= ln(2) / 2 and a Taylor
// polynomial; log by reduction to [sqrt(1/2), sqrt(2)) and the series of 2 atanh((m - 1) / (m +
// 1)). The coefficients are those of the series, rounded to double.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvant {

// ln(2) in two parts; the first has 32 significant bits, so that its product with an exponent is
// exact.
inline constexpr double kLn2High = 0x1.62e42feep-1;
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
inline constexpr double kLog2E = 0x1.71547652b82fep+0;
inline constexpr double kSqrtHalf = 0x1.6a09e667f3bcdp-1;

inline constexpr int kExpTerms = 14;  // r^14 / 14! < 2^-57 for |r| <= 0.3466
inline constexpr int kLogTerms = 12;  // s^24 / 25 < 2^-65 for |s| <= 0.1716

// 1 / i!
inline constexpr std::array<double, kExpTerms + 1> kInverseFactorials = [] {
  std::array<double, kExpTerms + 1> table{};
  double factorial = 1.0;  // exact up to 18!
  for (int i = 0; i <= kExpTerms; ++i) {
    if (i > 0) factorial *= i;
    table[static_cast<size_t>(i)] = 1.0 / factorial;
  }
  return table;
}();

// 1 / (2i + 1)
inline constexpr std::array<double, kLogTerms + 1> kInverseOdds = [] {
  std::array<double, kLogTerms + 1> table{};
  for (int i = 0; i <= kLogTerms; ++i) table[static_cast<size_t>(i)] = 1.0 / (2 * i + 1);
  return table;
}();

// The bits of a mantissa, and of the exponent of values in [0.5, 1).
inline constexpr uint64_t kMantissaBits = 0x000fffffffffffffu;
inline constexpr uint64_t kHalfExponent = 0x3fe0000000000000u;

}  // namespace kvant
