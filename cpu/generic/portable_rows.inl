// exp and log of rows of doubles, with the bits of PortableExp and PortableLog
// (engine/generate/portable_math.h): each operation on all lanes before the next one, so that the
// compiler makes vectors of them. Nothing here branches on a value. The constants are those of
// cpu/portable_series.h. Nothing is fused, so all instruction sets agree.
//
// Included inside an instruction set's namespace and target region.

constexpr int kRowLanes = 32;  // enough that no operation waits for the one before it

// Adding it rounds to an integer, which is then in the low bits.
constexpr double kIntegerRounder = 0x1.8p52;

// `value` where `sign` is below 0, else 0.
inline double IfNegative(double sign, double value) {
  const uint64_t mask = uint64_t{0} - (std::bit_cast<uint64_t>(sign) >> 63);
  return std::bit_cast<double>(std::bit_cast<uint64_t>(value) & mask);
}

// x: kRowLanes values, from -700 to 0 when divided by the divisor.
inline void ExpLanes(double* x, double divisor) {
  double scaled[kRowLanes];
  double r[kRowLanes];
  double sum[kRowLanes];
  for (int i = 0; i < kRowLanes; ++i) {
    x[i] = x[i] / divisor;
    const double shifted = x[i] * kLog2E + 0.5;
    const double nearest = (shifted + kIntegerRounder) - kIntegerRounder;
    scaled[i] = nearest - IfNegative(shifted - nearest, 1.0);  // floor
    r[i] = (x[i] - scaled[i] * kLn2High) - scaled[i] * kLn2Low;
    sum[i] = 0.0;
  }
  for (int term = kExpTerms; term >= 0; --term) {
    const double coefficient = kInverseFactorials[static_cast<size_t>(term)];
    for (int i = 0; i < kRowLanes; ++i) sum[i] = sum[i] * r[i] + coefficient;
  }
  // One step does for a power that is a normal number.
  for (int i = 0; i < kRowLanes; ++i) {
    const uint64_t exponent = std::bit_cast<uint64_t>(scaled[i] + kIntegerRounder) + 1023;
    x[i] = sum[i] * std::bit_cast<double>(exponent << 52);
  }
}

// x: kRowLanes positive, finite, normal values.
inline void LogLanes(double* x, double /*divisor*/) {
  double exponent[kRowLanes];
  double s[kRowLanes];
  double s2[kRowLanes];
  double sum[kRowLanes];
  for (int i = 0; i < kRowLanes; ++i) {
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
  for (int term = kLogTerms; term >= 1; --term) {
    const double coefficient = kInverseOdds[static_cast<size_t>(term)];
    for (int i = 0; i < kRowLanes; ++i) sum[i] = (sum[i] + coefficient) * s2[i];
  }
  for (int i = 0; i < kRowLanes; ++i) {
    const double log_m = 2.0 * s[i] + 2.0 * s[i] * sum[i];
    x[i] = exponent[i] * kLn2High + (exponent[i] * kLn2Low + log_m);
  }
}

// `lanes` over all values; the last lanes are filled up with `filler`.
template <void (*lanes)(double*, double)>
inline void OverLanes(double* values, int64_t count, double filler, double divisor) {
  int64_t i = 0;
  for (; i + kRowLanes <= count; i += kRowLanes) lanes(values + i, divisor);
  if (i == count) return;
  double rest[kRowLanes];
  for (int lane = 0; lane < kRowLanes; ++lane) {
    rest[lane] = i + lane < count ? values[i + lane] : filler;
  }
  lanes(rest, divisor);
  for (int lane = 0; i + lane < count; ++lane) values[i + lane] = rest[lane];
}

void PortableExps(double* values, int64_t count, double divisor) {
  OverLanes<ExpLanes>(values, count, 0.0, divisor);
}
void PortableLogs(double* values, int64_t count) { OverLanes<LogLanes>(values, count, 1.0, 1.0); }
