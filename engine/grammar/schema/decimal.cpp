#include "engine/grammar/schema/decimal.h"

#include <algorithm>

namespace kvant::grammar {

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  if (is_zero() && other.is_zero()) return std::strong_ordering::equal;
  if (negative != other.negative && !is_zero() && !other.is_zero()) {
    return negative ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  if (is_zero()) {
    return other.negative ? std::strong_ordering::greater : std::strong_ordering::less;
  }
  if (other.is_zero()) {
    return negative ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  const std::strong_ordering by_size =
      point != other.point ? point <=> other.point : digits.compare(other.digits) <=> 0;
  return negative ? 0 <=> by_size : by_size;
}

std::string Decimal::Whole() const {
  if (point <= 0 || is_zero()) return "0";
  const auto length = static_cast<size_t>(point);
  std::string whole = digits.substr(0, length);
  whole.resize(length, '0');
  return whole;
}

std::string Decimal::Fraction() const {
  if (is_zero()) return "";
  if (point <= 0) return std::string(static_cast<size_t>(-point), '0') + digits;
  const auto length = static_cast<size_t>(point);
  return length >= digits.size() ? "" : digits.substr(length);
}

std::optional<Decimal> ParseDecimal(std::string_view json) {
  Decimal number;
  if (json.starts_with('-')) {
    number.negative = true;
    json.remove_prefix(1);
  }
  int64_t exponent = 0;
  const size_t mark = json.find_first_of("eE");
  if (mark != std::string_view::npos) {
    std::string_view text = json.substr(mark + 1);
    const bool is_negative = text.starts_with('-');
    if (is_negative || text.starts_with('+')) text.remove_prefix(1);
    for (const char digit : text) {
      exponent = exponent * 10 + (digit - '0');
      if (exponent > 1'000'000) return std::nullopt;
    }
    if (is_negative) exponent = -exponent;
    json = json.substr(0, mark);
  }
  const size_t dot = json.find('.');
  number.digits = std::string(json.substr(0, dot));
  number.point = static_cast<int64_t>(number.digits.size()) + exponent;
  if (dot != std::string_view::npos) number.digits += json.substr(dot + 1);
  const size_t zeros = std::min(number.digits.find_first_not_of('0'), number.digits.size());
  number.digits.erase(0, zeros);
  number.point -= static_cast<int64_t>(zeros);
  number.digits.resize(number.digits.find_last_not_of('0') + 1);
  if (number.digits.empty()) return Decimal{};
  const auto length = static_cast<int64_t>(number.digits.size());
  if (number.point > kDecimalDigitsMax || length - number.point > kDecimalDigitsMax) {
    return std::nullopt;
  }
  return number;
}

}  // namespace kvant::grammar
