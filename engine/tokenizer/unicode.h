// Unicode for the tokenizers: UTF-8 decoding that survives any bytes, white space, NFC and the
// folding that uncased BERT applies. The character data is utf8proc's.
//
// Invalid UTF-8 is cut into "maximal subparts" (Unicode Standard, section 3.9, U+FFFD Substitution
// of Maximal Subparts), the practice of Python, Rust and the web. Every function is linear in the
// length of its input, whatever the input is.
// Thread-safety: free functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvant {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

enum class Utf8State : uint8_t {
  kValid,      // code_point is a Unicode scalar value
  kInvalid,    // these bytes can never be part of a character; code_point is U+FFFD
  kTruncated,  // the text ends within a character that may still become valid; U+FFFD as well
};

struct Utf8Char {
  char32_t code_point = kReplacementCharacter;
  uint8_t size = 1;  // bytes, at least 1
  Utf8State state = Utf8State::kInvalid;
};

// The first character of `text`, which must not be empty.
Utf8Char DecodeUtf8(std::string_view text);

void AppendUtf8(char32_t code_point, std::string& text);

bool IsValidUtf8(std::string_view text);

// Length in bytes of the longest prefix that is valid UTF-8.
size_t ValidUtf8Prefix(std::string_view text);

bool IsWhiteSpace(char32_t code_point);  // the property White_Space
// Words are made of such characters: letters, marks, digits, connectors, joiners. This is \w of
// Unicode Technical Standard 18, annex C.
bool IsWordCharacter(char32_t code_point);
bool IsCjkIdeograph(char32_t code_point);  // what BERT surrounds with spaces

char32_t ToLower(char32_t code_point);  // simple case mapping

// Canonical composition (NFC) and decomposition (NFD). Invalid bytes are kept as they are.
std::string NormalizeNfc(std::string_view text);
std::u32string NormalizeNfd(std::string_view text);  // invalid subparts become U+FFFD

}  // namespace kvant
