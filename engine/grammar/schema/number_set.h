// Sets of numbers, as the texts that stand for them. A set has every text without an exponent of
// each of its numbers: 1, 1.0 and 1.00. So sets can be intersected, joined and complemented as sets
// of texts. Exponents are allowed where nothing but the sign is bounded.
// Thread-safety: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/grammar/schema/decimal.h"
#include "engine/grammar/schema/text_set.h"

namespace kvant::grammar {

struct NumberSet {
  TextSet plain;  // texts without an exponent
  // Whether it has every text with an exponent of a sign.
  bool has_exponents = false;
  bool has_negative_exponents = false;
  // How its numbers are written: all as `plain` and with exponents, whole ones without a point, or
  // without needless zeros at the end.
  enum class Form : uint8_t { kAny, kWhole, kShort };
  Form form = Form::kAny;

  bool empty() const { return plain.empty(); }
  bool operator==(const NumberSet&) const = default;
};

NumberSet AllNumbers();
NumberSet WholeNumbers();
Result<NumberSet> TheseNumbers(std::span<const Decimal> numbers);

enum class NumberBound : uint8_t { kLeast, kGreatest, kAbove, kBelow };
// The numbers from or up to a bound, or beyond it.
NumberSet NumbersFrom(NumberBound bound, const Decimal& number);
// The multiples of a number above 0. kNotSupported where it has too many digits.
Result<NumberSet> MultiplesOf(const Decimal& number);

Result<NumberSet> BothNumbers(const NumberSet& first, const NumberSet& second);
Result<NumberSet> OtherNumbers(const NumberSet& set);

// The texts in which numbers of the set are written. Not those with an exponent, which are all of
// NumberSet's.
Result<TextSet> WrittenTexts(const NumberSet& set);

// The numbers of the set in their shortest form, if there are at most `most`.
Result<std::optional<std::vector<std::string>>> ListNumbers(const NumberSet& set, size_t most);

}  // namespace kvant::grammar
