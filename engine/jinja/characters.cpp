// Cases and kinds of characters, and the methods of strings that ask for them. Cases are the simple
// mappings of Unicode, one character to one, and German's sharp s.
#include <utf8proc.h>

#include <algorithm>

#include "engine/jinja/native_code.h"
#include "engine/tokenizer/unicode.h"

namespace kvant::jinja {
namespace {

char32_t Upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t Title(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}
bool IsUpper(char32_t c) { return ToLower(c) != c; }
bool IsLower(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_LL;
}
bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || Upper(c) != c; }
bool IsLetter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsDecimal(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

std::string Utf8(char32_t c) {
  std::string text;
  AppendUtf8(c, text);
  return text;
}
std::string UpperUtf8(char32_t c) { return c == 0xDF ? "SS" : Utf8(Upper(c)); }
std::string TitleUtf8(char32_t c) { return c == 0xDF ? "Ss" : Utf8(Title(c)); }
std::string LowerUtf8(char32_t c) { return Utf8(ToLower(c)); }

// Whether the text is not empty and every character is of the kind.
template <class Kind>
Value AreAll(const Value& self, const Kind& kind) {
  const std::string_view text = self.text().view();
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(i));
    if (!kind(c.code_point)) return false;
    i += c.size;
  }
  return !text.empty();
}

// Whether there is a cased character and all of them have the case.
template <class Kind>
Value AreCased(const Value& self, const Kind& kind) {
  const std::string_view text = self.text().view();
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(i));
    if (IsCased(c.code_point) && !kind(c.code_point)) return false;
    any = any || IsCased(c.code_point);
    i += c.size;
  }
  return any;
}

}  // namespace

Text LowerText(const Text& text) { return MapCharacters(text, LowerUtf8); }
Text UpperText(const Text& text) { return MapCharacters(text, UpperUtf8); }

Text CapitalizeText(const Text& text) {
  bool first = true;
  return MapCharacters(text, [&first](char32_t c) {
    return std::exchange(first, false) ? TitleUtf8(c) : LowerUtf8(c);
  });
}

Text TitleText(const Text& text) {
  bool in_word = false;
  return MapCharacters(text, [&in_word](char32_t c) {
    const bool begins = !std::exchange(in_word, IsCased(c));
    return begins ? TitleUtf8(c) : LowerUtf8(c);
  });
}

Result<Value> TextLower(Run& run, const Value& self, const Bound&) {
  return run.Make(LowerText(self.text()));
}
Result<Value> TextUpper(Run& run, const Value& self, const Bound&) {
  return run.Make(UpperText(self.text()));
}
Result<Value> TextCapitalize(Run& run, const Value& self, const Bound&) {
  return run.Make(CapitalizeText(self.text()));
}
Result<Value> TextTitle(Run& run, const Value& self, const Bound&) {
  return run.Make(TitleText(self.text()));
}
Result<Value> TextSwapCase(Run& run, const Value& self, const Bound&) {
  return run.Make(MapCharacters(
      self.text(), [](char32_t c) { return IsUpper(c) ? LowerUtf8(c) : UpperUtf8(c); }));
}
Result<Value> TextIsAlnum(Run&, const Value& self, const Bound&) {
  return AreAll(self, [](char32_t c) { return IsLetter(c) || IsDecimal(c); });
}
Result<Value> TextIsAlpha(Run&, const Value& self, const Bound&) { return AreAll(self, IsLetter); }
Result<Value> TextIsDigit(Run&, const Value& self, const Bound&) { return AreAll(self, IsDecimal); }
Result<Value> TextIsSpace(Run&, const Value& self, const Bound&) {
  return AreAll(self, IsPythonSpace);
}
Result<Value> TextIsAscii(Run&, const Value& self, const Bound&) {
  const std::string_view text = self.text().view();
  return Value(std::all_of(text.begin(), text.end(),
                           [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}
Result<Value> TextIsLower(Run&, const Value& self, const Bound&) { return AreCased(self, IsLower); }
Result<Value> TextIsUpper(Run&, const Value& self, const Bound&) { return AreCased(self, IsUpper); }

}  // namespace kvant::jinja
