// Values as text: what Python's str and repr say.
#include <utf8proc.h>

#include <charconv>
#include <cmath>

#include "engine/jinja/object.h"
#include "engine/jinja/value.h"
#include "engine/tokenizer/unicode.h"

namespace kvant::jinja {
namespace {

bool IsPrintable(char32_t code_point) {
  if (code_point == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

std::string ReprOfCharacter(char32_t c, char quote) {
  if (c == static_cast<char32_t>(quote) || c == '\\') return {'\\', static_cast<char>(c)};
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  if (!IsPrintable(c)) {
    const auto code = static_cast<uint32_t>(c);
    if (code < 0x100) return fmt::format("\\x{:02x}", code);
    return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
  }
  std::string same;
  AppendUtf8(c, same);
  return same;
}

Text ReprOfText(const Text& text) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  Text out(std::string(1, quote));
  out.Append(MapCharacters(text, [quote](char32_t c) { return ReprOfCharacter(c, quote); }));
  out.Append(std::string(1, quote));
  return out;
}

Text ReprOfItems(const Sequence& sequence, std::string_view open, std::string_view close) {
  Text out{std::string(open)};
  for (size_t i = 0; i < sequence.items.size(); ++i) {
    if (i > 0) out.Append(", ");
    out.Append(Repr(sequence.items[i]));
  }
  out.Append(close);
  return out;
}

Text ReprOfSequence(const Sequence& sequence) {
  switch (sequence.kind) {
    case Sequence::Kind::kTuple:
      return ReprOfItems(sequence, "(", sequence.items.size() == 1 ? ",)" : ")");
    case Sequence::Kind::kRange: return Text(fmt::format("range of {}", sequence.items.size()));
    case Sequence::Kind::kView: return ReprOfItems(sequence, "dict_view([", "])");
    case Sequence::Kind::kGenerator: return Text("<generator object>");
    case Sequence::Kind::kList: break;
  }
  return ReprOfItems(sequence, "[", "]");
}

Text ReprOfDict(const Dict& dict) {
  Text out(std::string("{"));
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) out.Append(", ");
    out.Append(Repr(dict.items[i].first));
    out.Append(": ");
    out.Append(Repr(dict.items[i].second));
  }
  out.Append("}");
  return out;
}

}  // namespace

// The shortest digits that give the same number back, with an exponent where Python writes one:
// below 1e-4 and from 1e16 on.
std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string text(buffer, scientific.ptr);
  const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string plain(buffer, fixed.ptr);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

std::optional<Whole> WholeOf(double value) {
  if (!(value >= -0x1p63 && value < 0x1p64)) return std::nullopt;
  return static_cast<Whole>(value);
}

std::string WholeText(Whole value) {
  return value < 0 ? std::to_string(static_cast<int64_t>(value))
                   : std::to_string(static_cast<uint64_t>(value));
}

Text Repr(const Value& value) {
  if (value.IsText()) return ReprOfText(value.text());
  if (value.IsUndefined()) return Text("Undefined");
  if (value.IsNone()) return Text("None");
  if (value.IsBool()) return Text(value.boolean() ? "True" : "False");
  if (value.IsInt()) return Text(WholeText(value.whole()));
  if (value.IsFloat()) return Text(FloatText(value.number()));
  if (value.IsSequence()) return ReprOfSequence(value.sequence());
  if (value.IsDict()) return ReprOfDict(value.dict());
  return Text(fmt::format("<{} object>", value.TypeName()));
}

Text Str(const Value& value) {
  if (value.IsUndefined()) return {};
  if (value.IsText()) return value.text();
  return Repr(value);
}

}  // namespace kvant::jinja
