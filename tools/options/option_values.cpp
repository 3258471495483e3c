#include "tools/options/option_values.h"

#include <charconv>

#include "base/result.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

// The value of one hexadecimal digit, -1 for other characters.
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char next = text[++i];
    switch (next) {
      case 'n': out += '\n'; continue;
      case 't': out += '\t'; continue;
      case 'r': out += '\r'; continue;
      case '\'':
      case '"':
      case '\\': out += next; continue;
      default: break;
    }
    if (next == 'x' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
        HexDigit(text[i + 2]) >= 0) {
      out += static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2]));
      i += 2;
      continue;
    }
    out += '\\';
    out += next;
  }
  return out;
}

std::optional<uint64_t> ParseSize(std::string_view text) {
  struct Unit {
    std::string_view suffix;
    uint64_t bytes;
  };
  static constexpr Unit kUnits[] = {{"KiB", 1 << 10}, {"MiB", 1 << 20},  {"GiB", 1 << 30},
                                    {"KB", 1'000},    {"MB", 1'000'000}, {"GB", 1'000'000'000},
                                    {"K", 1'000},     {"M", 1'000'000},  {"G", 1'000'000'000}};
  uint64_t unit = 1;
  for (const Unit& candidate : kUnits) {
    if (!text.ends_with(candidate.suffix)) continue;
    unit = candidate.bytes;
    text.remove_suffix(candidate.suffix.size());
    break;
  }
  uint64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  uint64_t size = 0;
  if (error == std::errc() && stop == end && count > 0 &&
      !__builtin_mul_overflow(count, unit, &size)) {
    return size;
  }
  // Digits, a point and digits, of a unit.
  if (text.find_first_not_of("0123456789.") != std::string_view::npos || unit == 1) return {};
  double number = 0;
  const auto [after, wrong] = std::from_chars(text.data(), end, number);
  number *= static_cast<double>(unit);
  if (wrong != std::errc() || after != end || !(number >= 1 && number < 0x1p63)) return {};
  return static_cast<uint64_t>(number);
}

Status TakeSize(std::string_view text, std::string_view example, uint64_t* bytes) {
  const auto size = ParseSize(text);
  if (!size.has_value()) {
    return MakeError(ErrorCode::kInvalid, "expected a size such as {}, found '{}'", example,
                     Visible(text));
  }
  *bytes = *size;
  return {};
}

}  // namespace kvant::tools
