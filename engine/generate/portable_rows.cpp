// PortableExps and PortableLogs: the operations of portable_math.cpp, each on all lanes before the
// next one, so that the compiler makes vectors of them. Nothing here branches on a value.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "engine/generate/portable_math.h"
#include "engine/generate/portable_series.h"

namespace kvant {
namespace {

constexpr size_t kRowLanes = 16;
using RowLanes = std::array<double, kRowLanes>;

// Adding it rounds to an integer, which is then in the low bits.
constexpr double kIntegerRounder = 0x1.8p52;

// `value` where `sign` is below 0, else 0.
inline double IfNegative(double sign, double value) {
  const uint64_t mask = uint64_t{0} - (std::bit_cast<uint64_t>(sign) >> 63);
  return std::bit_cast<double>(std::bit_cast<uint64_t>(value) & mask);
}

// x: kRowLanes values from -700 to 0.
void ExpLanes(double* x) {
  RowLanes scaled;
  RowLanes r;
  RowLanes sum;
  for (size_t i = 0; i < kRowLanes; ++i) {
    const double shifted = x[i] * kLog2E + 0.5;
    const double nearest = (shifted + kIntegerRounder) - kIntegerRounder;
    scaled[i] = nearest - IfNegative(shifted - nearest, 1.0);  // floor
    r[i] = (x[i] - scaled[i] * kLn2High) - scaled[i] * kLn2Low;
    sum[i] = 0.0;
  }
  for (size_t term = kExpTerms + 1; term-- > 0;) {
    for (size_t i = 0; i < kRowLanes; ++i) sum[i] = sum[i] * r[i] + kInverseFactorials[term];
  }
  // One step does for a power that is a normal number.
  for (size_t i = 0; i < kRowLanes; ++i) {
    const uint64_t exponent = std::bit_cast<uint64_t>(scaled[i] + kIntegerRounder) + 1023;
    x[i] = sum[i] * std::bit_cast<double>(exponent << 52);
  }
}

// x: kRowLanes positive, finite, normal values.
void LogLanes(double* x) {
  RowLanes exponent;
  RowLanes s;
  RowLanes s2;
  RowLanes sum;
  for (size_t i = 0; i < kRowLanes; ++i) {
    const uint64_t bits = std::bit_cast<uint64_t>(x[i]);
    const double half = std::bit_cast<double>((bits & kMantissaBits) | kHalfExponent);
    const double below = half - kSqrtHalf;
    const double m = half + IfNegative(below, half);
    // 2^52 with the exponent in its low bits.
    const double whole = std::bit_cast<double>((bits >> 52) | std::bit_cast<uint64_t>(0x1p52));
    exponent[i] = (whole - (0x1p52 + 1022)) - IfNegative(below, 1.0);
    s[i] = (m - 1.0) / (m + 1.0);
    s2[i] = s[i] * s[i];
    sum[i] = 0.0;
  }
  for (size_t term = kLogTerms; term >= 1; --term) {
    for (size_t i = 0; i < kRowLanes; ++i) sum[i] = (sum[i] + kInverseOdds[term]) * s2[i];
  }
  for (size_t i = 0; i < kRowLanes; ++i) {
    const double log_m = 2.0 * s[i] + 2.0 * s[i] * sum[i];
    x[i] = exponent[i] * kLn2High + (exponent[i] * kLn2Low + log_m);
  }
}

}  // namespace

void PortableExps(std::span<double> values) {
  size_t i = 0;
  for (; i + kRowLanes <= values.size(); i += kRowLanes) ExpLanes(&values[i]);
  for (; i < values.size(); ++i) values[i] = PortableExp(values[i]);
}

void PortableLogs(std::span<double> values) {
  size_t i = 0;
  for (; i + kRowLanes <= values.size(); i += kRowLanes) LogLanes(&values[i]);
  for (; i < values.size(); ++i) values[i] = PortableLog(values[i]);
}

void SanitizeRow(std::span<const float> from, std::span<float> to) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr size_t kPiece = 64;
  size_t begin = 0;
  for (; begin + kPiece <= from.size(); begin += kPiece) {
    for (size_t i = begin; i < begin + kPiece; ++i) {
      const float value = from[i];
      const float capped = value < kMost ? value : kMost;
      to[i] = value == value ? capped : kLogitNone;
    }
  }
  for (; begin < from.size(); ++begin) to[begin] = Sanitize(from[begin]);
}

}  // namespace kvant
