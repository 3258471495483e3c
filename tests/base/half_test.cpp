// 16-bit floats against exact arithmetic: all halves against the formula of IEEE 754, and rounding
// against a search for the nearest value among all halves.
#include "base/half.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kvant {
namespace {

// The value of a binary16 or bfloat16 pattern from its fields, in arithmetic wide enough to be
// exact. exponent_bits + mantissa_bits == 15. Infinity and NaN are left to the caller.
long double ExactValue(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1));
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const long double fraction = std::ldexp(static_cast<long double>(mantissa), -mantissa_bits);
  const long double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

// A 16-bit format and its conversions.
struct Format {
  const char* name;
  int exponent_bits;
  int mantissa_bits;
  float (*to_f32)(uint16_t);
  uint16_t (*from_f32)(float);

  uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
  bool finite(uint32_t bits) const { return (bits & 0x7fffu) < infinity(); }
  bool nan(uint32_t bits) const { return (bits & 0x7fffu) > infinity(); }
};

class HalfTest : public testing::TestWithParam<Format> {};

INSTANTIATE_TEST_SUITE_P(Formats, HalfTest,
                         testing::Values(Format{"F16", 5, 10, F16ToF32, F32ToF16},
                                         Format{"BF16", 8, 7, Bf16ToF32, F32ToBf16}),
                         [](const auto& test) { return test.param.name; });

TEST_P(HalfTest, EveryPatternHasItsValue) {
  const Format& format = GetParam();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = format.to_f32(static_cast<uint16_t>(bits));
    if (format.nan(bits)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else if (!format.finite(bits)) {
      ASSERT_EQ(value, (bits & 0x8000u) != 0 ? -std::numeric_limits<float>::infinity()
                                             : std::numeric_limits<float>::infinity());
    } else {
      ASSERT_EQ(value, ExactValue(bits, format.exponent_bits, format.mantissa_bits)) << bits;
    }
    ASSERT_EQ(std::signbit(value), (bits & 0x8000u) != 0) << bits;
  }
}

TEST_P(HalfTest, EveryValueComesBack) {
  const Format& format = GetParam();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t back = format.from_f32(format.to_f32(static_cast<uint16_t>(bits)));
    if (format.nan(bits)) {
      ASSERT_TRUE(format.nan(back)) << bits;
      ASSERT_EQ(back & 0x8000u, bits & 0x8000u) << bits;
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

// Round to nearest, ties to even, by searching all non-negative finite values. The value that would
// follow the greatest stands for infinity, as IEEE 754 defines overflow.
class NearestSearch {
 public:
  explicit NearestSearch(const Format& format) {
    for (uint32_t bits = 0; bits < format.infinity(); ++bits) {
      values_.push_back(ExactValue(bits, format.exponent_bits, format.mantissa_bits));
    }
    const size_t last = values_.size() - 1;
    values_.push_back(values_[last] + (values_[last] - values_[last - 1]));
  }

  uint16_t operator()(float value) const {
    const uint32_t sign = std::signbit(value) ? 0x8000u : 0;
    const long double magnitude = std::fabs(value);
    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    if (above == values_.end()) return static_cast<uint16_t>(sign | (values_.size() - 1));
    size_t nearest = static_cast<size_t>(above - values_.begin());
    if (nearest > 0) {
      const long double up = values_[nearest] - magnitude;
      const long double down = magnitude - values_[nearest - 1];
      if (down < up || (down == up && nearest % 2 == 1)) --nearest;
    }
    return static_cast<uint16_t>(sign | nearest);
  }

 private:
  std::vector<long double> values_;  // indexed by bit pattern
};

TEST_P(HalfTest, RoundsToNearestEven) {
  const Format& format = GetParam();
  const NearestSearch nearest(format);
  const auto check = [&](float value) {
    if (std::isnan(value)) return;
    ASSERT_EQ(format.from_f32(value), nearest(value)) << fmt::format("{:a}", value);
    ASSERT_EQ(format.from_f32(-value), nearest(-value)) << fmt::format("{:a}", -value);
  };
  // Every value, every midpoint between neighbours, and the floats beside each.
  for (uint32_t bits = 0; bits < format.infinity(); ++bits) {
    const float value = format.to_f32(static_cast<uint16_t>(bits));
    const float next = bits + 1 < format.infinity() ? format.to_f32(static_cast<uint16_t>(bits + 1))
                                                    : std::numeric_limits<float>::max();
    const float middle = static_cast<float>((double{value} + double{next}) / 2);
    for (const float centre : {value, middle}) {
      check(centre);
      check(std::nextafter(centre, std::numeric_limits<float>::infinity()));
      check(std::nextafter(centre, 0.0f));
    }
  }
  const float boundaries[] = {65504.0f,
                              65519.99f,
                              65520.0f,
                              65536.0f,
                              0x1p-24f,
                              0x1p-25f,
                              0x1p-14f,
                              0x1p-126f,
                              0x1p-149f,
                              3.4e38f,
                              std::numeric_limits<float>::max(),
                              std::numeric_limits<float>::infinity()};
  for (const float value : boundaries) check(value);
  std::mt19937 random(1);
  for (int i = 0; i < 300000; ++i) check(std::bit_cast<float>(static_cast<uint32_t>(random())));
}

TEST_P(HalfTest, KeepsEveryNan) {
  const Format& format = GetParam();
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    const uint16_t half = format.from_f32(std::bit_cast<float>(bits));
    EXPECT_TRUE(format.nan(half)) << bits;
    EXPECT_EQ(half >> 15, bits >> 31);
  }
}

}  // namespace
}  // namespace kvant
