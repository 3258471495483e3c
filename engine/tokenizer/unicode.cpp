// UTF-8 decoding, and thin layers over utf8proc. Canonical ordering is done here: utf8proc's own
// exchanges neighbours until they are in order, which is quadratic in a long run of marks.
#include "engine/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

namespace kvant {
namespace {

// Well-formed UTF-8, Unicode Standard table 3-7: the length that a lead byte announces and the
// range of the second byte; further bytes are 0x80 to 0xBF.
struct LeadByte {
  uint8_t size;  // 0: not a lead byte
  uint8_t second_min;
  uint8_t second_max;
};

LeadByte ClassifyLead(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

utf8proc_int32_t Signed(char32_t code_point) { return static_cast<utf8proc_int32_t>(code_point); }

int CombiningClass(char32_t code_point) {
  return utf8proc_get_property(Signed(code_point))->combining_class;
}

// The longest canonical decomposition of one character has 4 code points; utf8proc asks for room.
constexpr int kDecompositionMax = 32;

void AppendDecomposed(char32_t code_point, std::u32string& out) {
  std::array<utf8proc_int32_t, kDecompositionMax> parts;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  const utf8proc_ssize_t count = utf8proc_decompose_char(Signed(code_point), parts.data(),
                                                         kDecompositionMax, options, nullptr);
  if (count <= 0 || count > kDecompositionMax) {
    out.push_back(code_point);
    return;
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    out.push_back(static_cast<char32_t>(parts[static_cast<size_t>(i)]));
  }
}

// Canonical ordering: each run of marks (combining class above 0) sorted by class, stable.
void SortMarks(std::u32string& text) {
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (CombiningClass(text[begin]) == 0) continue;
    size_t end = begin + 1;
    while (end < text.size() && CombiningClass(text[end]) != 0) ++end;
    if (end - begin > 1) {
      std::stable_sort(
          text.begin() + static_cast<ptrdiff_t>(begin), text.begin() + static_cast<ptrdiff_t>(end),
          [](char32_t a, char32_t b) { return CombiningClass(a) < CombiningClass(b); });
    }
    begin = end;
  }
}

std::u32string Decompose(std::string_view text) {
  std::u32string code_points;
  code_points.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    text.remove_prefix(c.size);
    if (c.code_point < 0x80) {
      code_points.push_back(c.code_point);
    } else {
      AppendDecomposed(c.code_point, code_points);
    }
  }
  SortMarks(code_points);
  return code_points;
}

void AppendComposed(std::string_view valid_text, std::string& out) {
  const std::u32string decomposed = Decompose(valid_text);
  std::vector<utf8proc_int32_t> buffer(decomposed.begin(), decomposed.end());
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      buffer.data(), static_cast<utf8proc_ssize_t>(buffer.size()), options);
  if (count < 0) {
    out.append(valid_text);
    return;
  }
  buffer.resize(static_cast<size_t>(count));
  for (const utf8proc_int32_t code_point : buffer) {
    AppendUtf8(static_cast<char32_t>(code_point), out);
  }
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const LeadByte lead = ClassifyLead(byte(0));
  if (lead.size == 1) return {byte(0), 1, Utf8State::kValid};
  if (lead.size == 0) return {kReplacementCharacter, 1, Utf8State::kInvalid};
  // The lead byte's payload: 5, 4 or 3 bits.
  char32_t code_point = byte(0) & (0xFFu >> (lead.size + 1));
  for (uint8_t i = 1; i < lead.size; ++i) {
    if (i >= text.size()) return {kReplacementCharacter, i, Utf8State::kTruncated};
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte(i) < min || byte(i) > max) return {kReplacementCharacter, i, Utf8State::kInvalid};
    code_point = (code_point << 6) | (byte(i) & 0x3Fu);
  }
  return {code_point, lead.size, Utf8State::kValid};
}

void AppendUtf8(char32_t code_point, std::string& text) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const Utf8Char c = DecodeUtf8(text.substr(size));
    if (c.state != Utf8State::kValid) break;
    size += c.size;
  }
  return size;
}

bool IsValidUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

bool IsWhiteSpace(char32_t c) {
  // PropList.txt, White_Space.
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsWordCharacter(char32_t c) {
  switch (utf8proc_category(Signed(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
  }
  // Join_Control, and the symbols with Other_Alphabetic: letters in circles and squares.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

bool IsCjkIdeograph(char32_t c) {
  // The blocks of BERT's basic tokenizer, with the first CJK extension E value (0x2B920) as
  // Hugging Face's BertNormalizer has it.
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

char32_t ToLower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(Signed(c))); }

std::u32string NormalizeNfd(std::string_view text) { return Decompose(text); }

std::string NormalizeNfc(std::string_view text) {
  // Below U+0300 (lead byte 0xCC) every character is composed and nothing combines.
  const auto may_change = [](char c) { return static_cast<uint8_t>(c) >= 0xCC; };
  if (std::none_of(text.begin(), text.end(), may_change)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    AppendComposed(text.substr(0, valid), out);
    text.remove_prefix(valid);
    if (text.empty()) break;
    const size_t invalid = DecodeUtf8(text).size;
    out.append(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
  return out;
}

}  // namespace kvant
