#include "engine/convert/rwkv_vocabulary.h"

#include <charconv>
#include <fstream>
#include <optional>

#include "base/result.h"
#include "engine/tokenizer/kinds.h"

namespace kvant::convert {
namespace {

// Appends a code point in UTF-8; false for what is none.
bool AppendCodePoint(uint32_t code, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    tail(6);
    tail(0);
  } else if (code < 0x110000) {
    out += static_cast<char>(0xF0 | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  } else {
    return false;
  }
  return true;
}

// The bytes of a literal of Python between its quotes; nothing for what is none.
std::optional<std::string> BytesOfLiteral(std::string_view literal) {
  const bool of_bytes = literal.starts_with('b');
  if (of_bytes) literal.remove_prefix(1);
  if (literal.size() < 2 || (literal[0] != '\'' && literal[0] != '"')) return std::nullopt;
  if (literal.back() != literal.front()) return std::nullopt;
  literal = literal.substr(1, literal.size() - 2);
  std::string bytes;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\') {
      bytes += literal[i];
      continue;
    }
    if (++i == literal.size()) return std::nullopt;
    const char c = literal[i];
    const size_t digits = c == 'x' ? 2 : of_bytes ? 0 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      constexpr std::string_view kLetters = "tnr\\'\"";
      constexpr std::string_view kMeant = "\t\n\r\\'\"";
      const size_t place = kLetters.find(c);
      if (place == std::string_view::npos) return std::nullopt;
      bytes += kMeant[place];
      continue;
    }
    if (literal.size() - i - 1 < digits) return std::nullopt;
    const char* first = literal.data() + i + 1;
    uint32_t code = 0;
    const auto read = std::from_chars(first, first + digits, code, 16);
    if (read.ec != std::errc() || read.ptr != first + digits) return std::nullopt;
    if (of_bytes) {
      bytes += static_cast<char>(code);
    } else if (!AppendCodePoint(code, bytes)) {
      return std::nullopt;
    }
    i += digits;
  }
  return bytes;
}

// A piece as GGUF files spell its bytes.
std::string Escaped(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto value = static_cast<uint8_t>(c);
    switch (c) {
      case '\\': text += "\\\\"; break;
      case '\t': text += "\\t"; break;
      case '\n': text += "\\n"; break;
      case '\r': text += "\\r"; break;
      default:
        if (value >= 0x20 && value < 0x7F) {
          text += c;
        } else {
          text += fmt::format("\\x{:02x}", value);
        }
    }
  }
  return text;
}

struct RwkvLine {
  int64_t id = 0;
  std::string bytes;
};

// Nothing for a line of another form, or whose text has another size than it says.
std::optional<RwkvLine> ParseLine(std::string_view line) {
  const size_t left = line.find(' ');
  const size_t right = line.rfind(' ');
  if (left == std::string_view::npos || left == right) return std::nullopt;
  RwkvLine parsed;
  int64_t size = 0;
  const char* end = line.data() + line.size();
  const auto id = std::from_chars(line.data(), line.data() + left, parsed.id);
  const auto count = std::from_chars(line.data() + right + 1, end, size);
  if (id.ec != std::errc() || id.ptr != line.data() + left) return std::nullopt;
  if (count.ec != std::errc() || count.ptr != end) return std::nullopt;
  auto bytes = BytesOfLiteral(line.substr(left + 1, right - left - 1));
  if (!bytes.has_value() || std::ssize(*bytes) != size || size == 0) return std::nullopt;
  parsed.bytes = std::move(*bytes);
  return parsed;
}

}  // namespace

Result<Vocabulary> ReadRwkvVocabulary(const std::string& path, int64_t vocab_size) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return MakeError(ErrorCode::kIo, "{}: cannot be opened", path);
  Vocabulary vocabulary;
  vocabulary.model = kRwkvKind;
  vocabulary.pre = "default";
  vocabulary.tokens.emplace_back("<s>");
  vocabulary.types.push_back(Vocabulary::Type::kControl);
  std::string line;
  while (std::getline(stream, line)) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const int64_t id = std::ssize(vocabulary.tokens);
    const auto parsed = ParseLine(line);
    if (!parsed.has_value() || parsed->id != id || id >= vocab_size) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: line {}: expected token {} of less than {}, its text as Python writes "
                       "it and its bytes' number",
                       path, id, id, vocab_size);
    }
    vocabulary.tokens.push_back(Escaped(parsed->bytes));
    vocabulary.types.push_back(Vocabulary::Type::kNormal);
  }
  while (std::ssize(vocabulary.tokens) < vocab_size) {
    vocabulary.tokens.push_back(fmt::format("[PAD{}]", vocabulary.tokens.size()));
    vocabulary.types.push_back(Vocabulary::Type::kUnused);
  }
  vocabulary.bos = vocabulary.eos = 0;
  vocabulary.add_bos = vocabulary.add_eos = false;
  return vocabulary;
}

}  // namespace kvant::convert
