// Decimal numbers as JSON writes them, exact. Thread-safety: values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvant::grammar {

// A number of more digits than this, written out without an exponent, is not read.
inline constexpr int64_t kDecimalDigitsMax = 400;

struct Decimal {
  // The value is 0.D * 10^point, where D are the digits, which neither begin nor end with 0; no
  // digits: 0.
  bool negative = false;
  std::string digits = {};
  int64_t point = 0;

  bool operator==(const Decimal&) const = default;
  std::strong_ordering operator<=>(const Decimal& other) const;
  Decimal Magnitude() const { return {false, digits, point}; }

  bool is_zero() const { return digits.empty(); }
  bool is_whole() const { return static_cast<int64_t>(digits.size()) <= point || is_zero(); }
  // The digits before the point, "0" if there are none, and behind it, without zeros at the end.
  std::string Whole() const;
  std::string Fraction() const;
};

// Nothing for a number that is too long. The text is a number by JSON's grammar.
std::optional<Decimal> ParseDecimal(std::string_view json);

}  // namespace kvant::grammar
