// Filters that make strings and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/jinja/native_code.h"
#include "engine/jinja/operators.h"
#include "engine/tokenizer/unicode.h"

namespace kvant::jinja {
namespace {

// A whole number as Python's int reads it; nothing where it is none.
std::optional<Whole> ParseWhole(const Text& text, int base) {
  std::string digits = StripText(text, Side::kBoth).bytes();
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  const std::string_view prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
  if (!prefix.empty() && digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == prefix[1]) {
    digits.erase(0, 2);
  }
  if (!digits.empty() && digits.front() != '_' && digits.back() != '_') std::erase(digits, '_');
  uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, base);
  if (digits.empty() || digits[0] == '-' || error != std::errc() || stop != end) {
    return std::nullopt;
  }
  const Whole number = negative ? -Whole{value} : Whole{value};
  return number < kWholeMin ? std::nullopt : std::optional(number);
}

std::optional<double> ParseFloat(const Text& text) {
  std::string digits = StripText(text, Side::kBoth).bytes();
  if (digits.starts_with('+')) digits.erase(0, 1);
  double value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (digits.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

double Rounded(double value, int64_t precision) {
  if (precision < 0 || precision > 15) return value;
  return std::strtod(fmt::format("{:.{}f}", value, precision).c_str(), nullptr);
}

}  // namespace

Result<Value> FilterAbs(Run&, const Value& self, const Bound&) {
  if (self.IsFloat()) return Value(std::fabs(self.number()));
  if (!self.IsWhole()) return Wrong("expected a number, found {}", self.TypeName());
  return self.whole() < 0 ? Negate(self) : Value(self.whole());
}

Result<Value> FilterInt(Run&, const Value& self, const Bound& arguments) {
  const Value otherwise = arguments.Has(0) ? arguments[0] : Value(int64_t{0});
  KVANT_ASSIGN(const int64_t base, arguments.Whole(1, 10));
  if (base < 2 || base > 36) return self.IsText() ? otherwise : self;
  if (self.IsText()) {
    if (const auto whole = ParseWhole(self.text(), static_cast<int>(base))) return Value(*whole);
    const auto value = ParseFloat(self.text());
    const auto whole = value.has_value() ? WholeOf(*value) : std::nullopt;
    return whole.has_value() ? Value(*whole) : otherwise;
  }
  if (self.IsWhole()) return Value(self.whole());
  const auto whole = self.IsFloat() ? WholeOf(self.number()) : std::nullopt;
  return whole.has_value() ? Value(*whole) : otherwise;
}

Result<Value> FilterFloat(Run&, const Value& self, const Bound& arguments) {
  if (self.IsNumber()) return Value(self.number());
  if (self.IsText()) {
    if (const auto value = ParseFloat(self.text())) return Value(*value);
  }
  return arguments.Has(0) ? arguments[0] : Value(0.0);
}

Result<Value> FilterRound(Run&, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const int64_t precision, arguments.Whole(0, 0));
  KVANT_ASSIGN(const Text method, arguments.String(1, "common"));
  if (!self.IsNumber()) return Wrong("expected a number, found {}", self.TypeName());
  if (self.IsWhole() && method.bytes() == "common" && precision >= 0) return Value(self.whole());
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method.bytes() == "ceil") return Value(std::ceil(self.number() * scale) / scale);
  if (method.bytes() == "floor") return Value(std::floor(self.number() * scale) / scale);
  if (method.bytes() != "common") return Wrong("expected common, ceil or floor");
  return Value(Rounded(self.number(), precision));
}

Result<Value> FilterString(Run& run, const Value& self, const Bound&) {
  KVANT_ASSIGN(Text text, run.TextOf(self));
  return run.Make(std::move(text));
}

Result<Value> FilterSafe(Run& run, const Value& self, const Bound&) {
  KVANT_ASSIGN(Text text, run.TextOf(self));
  text.SetMarkup(true);
  return run.Make(std::move(text));
}

Result<Value> FilterEscape(Run& run, const Value& self, const Bound&) {
  if (self.IsText() && self.text().markup()) return self;
  KVANT_ASSIGN(const Text text, run.TextOf(self));
  return run.Make(EscapeHtml(text));
}

Result<Value> FilterLower(Run& run, const Value& self, const Bound&) {
  KVANT_ASSIGN(const Text text, run.TextOf(self));
  return run.Make(LowerText(text));
}
Result<Value> FilterUpper(Run& run, const Value& self, const Bound&) {
  KVANT_ASSIGN(const Text text, run.TextOf(self));
  return run.Make(UpperText(text));
}
Result<Value> FilterCapitalize(Run& run, const Value& self, const Bound&) {
  KVANT_ASSIGN(const Text text, run.TextOf(self));
  return run.Make(CapitalizeText(text));
}

// Unlike the method: words begin behind white space, hyphens and opening brackets.
Result<Value> FilterTitle(Run& run, const Value& self, const Bound&) {
  KVANT_ASSIGN(const Text text, run.TextOf(self));
  Text out;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.view().substr(i));
    i += c.size;
    constexpr std::u32string_view kBreaks = U"-({[<";
    const bool breaks =
        IsPythonSpace(c.code_point) || kBreaks.find(c.code_point) != std::u32string_view::npos;
    if (!breaks && i < text.size()) continue;
    out.Append(CapitalizeText(text.Part(begin, i)));
    begin = i;
  }
  return run.Make(std::move(out));
}

Result<Value> FilterTrim(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const Text text, run.TextOf(self));
  if (!arguments.Has(0) || arguments[0].IsNone()) return run.Make(StripText(text, Side::kBoth));
  KVANT_ASSIGN(const Text characters, arguments.String(0, ""));
  return run.Make(StripText(text, Side::kBoth, characters.view()));
}

Result<Value> FilterReplace(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(Text text, run.TextOf(self));
  text.SetMarkup(false);
  Bound texts = arguments;
  for (size_t i = 0; i < 2; ++i) {
    KVANT_ASSIGN(Text part, run.TextOf(arguments[i]));
    texts.values[i] = Value(std::move(part));
  }
  if (arguments[2].IsNone()) texts.given[2] = false;
  return TextReplace(run, Value(std::move(text)), texts);
}

Result<Value> FilterCenter(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const Text text, run.TextOf(self));
  KVANT_ASSIGN(const int64_t width, arguments.Whole(0, 80));
  if (width > 0) KVANT_TRY(run.Charge(static_cast<size_t>(width)));
  return run.Make(CenterText(text, width, Text(" ")));
}

Result<Value> FilterFormat(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const Text format, run.TextOf(self));
  if (!arguments.rest.named.empty()) {
    if (!arguments.rest.positional.empty()) return Wrong("named and other arguments do not mix");
    DictBuilder builder;
    for (const auto& [name, value] : arguments.rest.named) builder.SetText(name, value);
    KVANT_ASSIGN(const Value dict, builder.Finish());
    return FormatPercent(run, format, dict);
  }
  KVANT_ASSIGN(const Value tuple, run.Make(Sequence::Kind::kTuple, arguments.rest.positional));
  return FormatPercent(run, format, tuple);
}

Result<Value> FilterIndent(Run& run, const Value& self, const Bound& arguments) {
  if (!self.IsText()) return Wrong("expected a string, found {}", self.TypeName());
  Text indent;
  if (arguments.Has(0) && arguments[0].IsText()) {
    indent = arguments[0].text();
  } else {
    KVANT_ASSIGN(const int64_t width, arguments.Whole(0, 4));
    KVANT_TRY(run.Charge(static_cast<size_t>(std::max<int64_t>(width, 0))));
    indent = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
  }
  Text with_end = self.text();
  with_end.Append("\n");
  const std::vector<Text> lines = LinesOf(with_end);
  Text out;
  if (arguments.Flag(1, false)) out.Append(indent);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n");
    if (i > 0 && (lines[i].size() > 0 || arguments.Flag(2, false))) {
      KVANT_TRY(run.Write(indent, out));
    }
    out.Append(lines[i]);
  }
  return run.Make(std::move(out));
}

Result<Value> FilterTruncate(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const Text text, run.TextOf(self));
  KVANT_ASSIGN(const int64_t length, arguments.Whole(0, 255));
  KVANT_ASSIGN(const Text end, arguments.String(2, "..."));
  KVANT_ASSIGN(const int64_t leeway, arguments.Whole(3, 5));
  const auto end_size = static_cast<int64_t>(CountCharacters(end.view()));
  if (length < end_size || leeway < 0) return Wrong("the length {} is too small", length);
  const std::vector<size_t> offsets = CharacterOffsets(text.view());
  const auto size = static_cast<int64_t>(offsets.size()) - 1;
  if (size <= length || size - length <= leeway) return run.Make(text);
  Text out = text.Part(0, offsets[static_cast<size_t>(length - end_size)]);
  const size_t space = out.bytes().rfind(' ');
  if (!arguments.Flag(1, false) && space != std::string::npos) out = out.Part(0, space);
  out.Append(end);
  return run.Make(std::move(out));
}

Result<Value> FilterUrlEncode(Run& run, const Value& self, const Bound&) {
  KVANT_ASSIGN(const Text text, run.TextOf(self));
  if (!self.IsText() && !self.IsNumber()) return Wrong("expected a string");
  std::string out;
  for (const char c : text.bytes()) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("/_.-~").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return run.Make(text.has_foreign() ? Text::Foreign(std::move(out)) : Text(std::move(out)));
}

Result<Value> FilterWordCount(Run& run, const Value& self, const Bound&) {
  KVANT_ASSIGN(const Text text, run.TextOf(self));
  int64_t words = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.view().substr(i));
    const bool word =
        static_cast<unsigned char>(text.view()[i]) >= 0x80
            ? !IsPythonSpace(c.code_point)
            : std::isalnum(static_cast<int>(c.code_point)) != 0 || c.code_point == '_';
    words += word && !in_word ? 1 : 0;
    in_word = word;
    i += c.size;
  }
  return Value(words);
}

Result<Value> FilterDefault(Run& run, const Value& self, const Bound& arguments) {
  const bool use = self.IsUndefined() || (arguments.Flag(1, false) && !self.Truth());
  if (!use) return self;
  return arguments.Has(0) ? arguments[0] : run.Make(Text());
}

}  // namespace kvant::jinja
