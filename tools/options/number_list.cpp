#include "tools/options/number_list.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace kvant::tools {
namespace {

// A list of more numbers than this is a typing mistake, such as 1-1000000.
constexpr size_t kNumbersMax = 4096;

std::optional<int64_t> ReadNumber(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// A number, or a range from the first to the last by steps of addition or multiplication.
struct Range {
  int64_t first = 0;
  int64_t last = 0;
  char operation = '+';
  int64_t operand = 1;

  bool Reaches() const { return operation == '+' ? operand >= 1 : operand >= 2 && first >= 1; }
  int64_t Next(int64_t value) const {
    int64_t next = 0;
    const bool overflow = operation == '+' ? __builtin_add_overflow(value, operand, &next)
                                           : __builtin_mul_overflow(value, operand, &next);
    return overflow ? std::numeric_limits<int64_t>::max() : next;
  }
};

std::optional<Range> ReadRange(std::string_view text) {
  Range range;
  const size_t dash = text.find('-', 1);  // a dash in front is a sign
  if (dash == std::string_view::npos) {
    const auto value = ReadNumber(text);
    if (!value) return std::nullopt;
    range.first = range.last = *value;
    return range;
  }
  const size_t sign = text.find_first_of("+*", dash);
  const auto first = ReadNumber(text.substr(0, dash));
  const auto last = ReadNumber(text.substr(
      dash + 1, sign == std::string_view::npos ? std::string_view::npos : sign - dash - 1));
  if (!first || !last || *last < *first) return std::nullopt;
  range.first = *first;
  range.last = *last;
  if (sign != std::string_view::npos) {
    const auto operand = ReadNumber(text.substr(sign + 1));
    if (!operand) return std::nullopt;
    range.operation = text[sign];
    range.operand = *operand;
  }
  if (!range.Reaches()) return std::nullopt;
  return range;
}

Error WrongNumbers(const char* option, const std::string& text, Bounds<int64_t> bounds) {
  return MakeError(ErrorCode::kInvalid,
                   "{}: expected whole numbers from {} to {}, as in 512 or 128,512 or 1-8 or "
                   "0-64+16 or 1-8*2, found '{}'",
                   option, bounds.min, bounds.max, text);
}

}  // namespace

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t comma = text.find(',', begin);
    parts.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) return parts;
    begin = comma + 1;
  }
}

Result<std::vector<int64_t>> ParseNumbers(const char* option, const std::vector<std::string>& texts,
                                          Bounds<int64_t> bounds) {
  std::vector<int64_t> numbers;
  for (const std::string& text : texts) {
    for (const std::string& part : SplitList(text)) {
      const auto range = ReadRange(part);
      if (!range || range->first < bounds.min || range->last > bounds.max) {
        return WrongNumbers(option, text, bounds);
      }
      for (int64_t value = range->first; value <= range->last; value = range->Next(value)) {
        if (numbers.size() == kNumbersMax) {
          return MakeError(ErrorCode::kInvalid, "{}: expected at most {} numbers, found '{}'",
                           option, kNumbersMax, text);
        }
        numbers.push_back(value);
      }
    }
  }
  return numbers;
}

Result<std::vector<std::pair<int64_t, int64_t>>> ParsePairs(const char* option,
                                                            const std::vector<std::string>& texts,
                                                            Bounds<int64_t> bounds) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const std::string& text : texts) {
    const std::vector<std::string> parts = SplitList(text);
    const auto first = ReadNumber(parts.front());
    const auto second = ReadNumber(parts.back());
    const bool read = parts.size() == 2 && first && second;
    if (!read || std::min(*first, *second) < bounds.min || std::max(*first, *second) > bounds.max) {
      return MakeError(ErrorCode::kInvalid,
                       "{}: expected two whole numbers from {} to {}, as in 512,128, found '{}'",
                       option, bounds.min, bounds.max, text);
    }
    pairs.emplace_back(*first, *second);
  }
  return pairs;
}

}  // namespace kvant::tools
