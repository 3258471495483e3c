// A template cut into tokens, with trim_blocks and lstrip_blocks as transformers sets them: the
// line end behind a block goes, and so does the white space in front of a block that begins its
// line;
// "-" takes all white space on its side, "+" keeps it.
//
// Thread-safety: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvant::jinja {

enum class TokenKind : uint8_t {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,   // unescaped
  kInteger,  // digits, with prefix and without underscores
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 1;
};

inline constexpr size_t kTemplateBytesMax = size_t{1} << 22;

// All tokens, kEnd last. kInvalid, with the line in *line, for what is no template.
Result<std::vector<Token>> Tokenize(std::string_view source, int* line);

}  // namespace kvant::jinja
