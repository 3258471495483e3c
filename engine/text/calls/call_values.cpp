#include "engine/text/calls/call_values.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "engine/text/calls/json_scan.h"

namespace kvant {
namespace {

constexpr int kForeignDepthMax = 100;

bool IsWholeJson(std::string_view text) {
  JsonScan scan;
  const size_t taken = scan.Take(text);
  if (taken != text.size()) return false;
  if (scan.state() == JsonScan::State::kMore) scan.Take(" ");  // a number ends behind it
  return scan.state() == JsonScan::State::kDone;
}

// The code points of \xXX, \uXXXX and \UXXXXXXXX, as UTF-8.
void AppendCodePoint(uint32_t code, std::string& out) {
  const auto add = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | code >> 6);
    add(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  } else {
    add(0xF0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3F));
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

// Reads what is behind a backslash in a Python string, and moves `at` behind it. False: unknown.
bool TakeEscape(std::string_view text, size_t& at, std::string& out) {
  const char kind = text[at++];
  size_t digits = 0;
  switch (kind) {
    case 'n': out += '\n'; return true;
    case 't': out += '\t'; return true;
    case 'r': out += '\r'; return true;
    case 'b': out += '\b'; return true;
    case 'f': out += '\f'; return true;
    case '0': out += '\0'; return true;
    case '\n': return true;
    case 'x': digits = 2; break;
    case 'u': digits = 4; break;
    case 'U': digits = 8; break;
    default:
      // Python keeps the backslash of what it does not know.
      if (kind != '\\' && kind != '\'' && kind != '"') out += '\\';
      out += kind;
      return true;
  }
  uint32_t code = 0;
  for (size_t i = 0; i < digits; ++i) {
    if (at == text.size()) return false;
    const size_t value =
        std::string_view("0123456789abcdef")
            .find(static_cast<char>(text[at] >= 'A' && text[at] <= 'F' ? text[at] + 32 : text[at]));
    if (value == std::string_view::npos) return false;
    code = code * 16 + static_cast<uint32_t>(value);
    ++at;
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
  AppendCodePoint(code, out);
  return true;
}

bool TakePythonString(CallCursor& cursor, std::string& json) {
  const std::string_view rest = cursor.rest();
  const char quote = rest.front();
  size_t end = 1;
  while (end < rest.size() && rest[end] != quote) end += rest[end] == '\\' ? 2 : 1;
  std::string_view whole;
  if (end >= rest.size()) return cursor.Bytes(end + 1, whole);  // more has to come
  std::string text;
  for (size_t at = 1; at < end;) {
    if (rest[at] != '\\') {
      text += rest[at++];
      continue;
    }
    ++at;
    if (!TakeEscape(rest.substr(0, end), at, text)) return cursor.Fail();
  }
  json += '"' + EscapedForJson(text) + '"';
  return cursor.Bytes(end + 1, whole);
}

struct PythonWord {
  std::string_view written;
  std::string_view meant;  // in JSON
};
constexpr PythonWord kPythonWords[] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};

// A number or a word.
bool TakeWord(CallCursor& cursor, std::string& json) {
  const std::string_view rest = cursor.rest();
  const size_t length = rest.find_first_of(" \t\r\n,)]}:");
  std::string_view word;
  if (length == std::string_view::npos) return cursor.Bytes(rest.size() + 1, word);
  if (!cursor.Bytes(length, word)) return false;
  for (const auto& [written, meant] : kPythonWords) {
    if (word != written) continue;
    json += meant;
    return true;
  }
  if (!IsWholeJson(word)) return cursor.Fail();
  json += word;
  return true;
}

// Values between brackets, separated by commas; a last comma may stand alone.
template <typename TakeItem>
bool TakeItems(CallCursor& cursor, char close, std::string& json, const TakeItem& take) {
  bool first = true;
  while (true) {
    cursor.Blanks();
    if (cursor.TryChar(close)) return true;
    if (!first) {
      if (!cursor.Char(',')) return false;
      cursor.Blanks();
      if (cursor.TryChar(close)) return true;
      json += ", ";
    }
    if (!take()) return false;
    first = false;
  }
}

bool TakePythonAt(CallCursor& cursor, std::string& json, int depth) {
  if (depth > kForeignDepthMax) return cursor.Fail();
  cursor.Blanks();
  if (cursor.Sees('"') || cursor.Sees('\'')) return TakePythonString(cursor, json);
  for (const auto& [open, close] : {std::pair('[', ']'), std::pair('(', ')')}) {
    if (!cursor.TryChar(open)) continue;
    json += '[';
    if (!TakeItems(cursor, close, json, [&] { return TakePythonAt(cursor, json, depth + 1); })) {
      return false;
    }
    json += ']';
    return true;
  }
  if (cursor.TryChar('{')) {
    json += '{';
    const auto member = [&] {
      if (!cursor.Sees('"') && !cursor.Sees('\'')) return cursor.is_good() && cursor.Fail();
      if (!TakePythonString(cursor, json)) return false;
      cursor.Blanks();
      if (!cursor.Char(':')) return false;
      json += ": ";
      return TakePythonAt(cursor, json, depth + 1);
    };
    if (!TakeItems(cursor, '}', json, member)) return false;
    json += '}';
    return true;
  }
  return cursor.is_good() && TakeWord(cursor, json);
}

bool TakeBracedString(CallCursor& cursor, std::string& json) {
  const std::string_view rest = cursor.rest();
  std::string_view whole;
  const size_t end = rest.find(kBracedQuote, kBracedQuote.size());
  if (end == std::string_view::npos) return cursor.Bytes(rest.size() + 1, whole);
  json += '"' + EscapedForJson(rest.substr(kBracedQuote.size(), end - kBracedQuote.size())) + '"';
  return cursor.Bytes(end + kBracedQuote.size(), whole);
}

bool TakeBracedAt(CallCursor& cursor, std::string& json, int depth) {
  if (depth > kForeignDepthMax) return cursor.Fail();
  cursor.Blanks();
  if (cursor.Sees('<')) {
    if (!cursor.rest().starts_with(kBracedQuote)) {
      std::string_view quote;
      const bool may_come = kBracedQuote.starts_with(cursor.rest());
      return may_come ? cursor.Bytes(kBracedQuote.size(), quote) : cursor.Fail();
    }
    return TakeBracedString(cursor, json);
  }
  if (cursor.TryChar('[')) {
    json += '[';
    if (!TakeItems(cursor, ']', json, [&] { return TakeBracedAt(cursor, json, depth + 1); })) {
      return false;
    }
    json += ']';
    return true;
  }
  if (cursor.TryChar('{')) {
    json += '{';
    const auto member = [&] {
      std::string key;
      if (!cursor.Until(":", key)) return false;
      json += '"' + EscapedForJson(TrimmedMark(key)) + "\": ";
      return cursor.Char(':') && TakeBracedAt(cursor, json, depth + 1);
    };
    if (!TakeItems(cursor, '}', json, member)) return false;
    json += '}';
    return true;
  }
  return cursor.is_good() && TakeWord(cursor, json);
}

}  // namespace

std::string EscapedForJson(std::string_view text) {
  std::string out;
  for (const char byte : text) {
    switch (byte) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<uint8_t>(byte) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(byte));
        } else {
          out += byte;
        }
    }
  }
  return out;
}

std::string JsonOfTagged(std::string_view text, ToolTypes types) {
  const std::string_view value = TrimmedMark(text);
  for (const auto& [written, meant] : kPythonWords) {
    const ToolTypes type = meant == "null" ? kTypeNull : kTypeBoolean;
    if ((value == written || value == meant) && (types & type) != 0) return std::string(meant);
  }
  if (!value.empty() && IsWholeJson(value)) {
    const char first = value.front();
    const bool is_other = first == '{' || first == '[';
    const bool is_number = first == '-' || (first >= '0' && first <= '9');
    if (is_other && (types & kTypeOther) != 0) return std::string(value);
    if (is_number && (types & kTypeNumber) != 0) return std::string(value);
  }
  return '"' + EscapedForJson(text) + '"';
}

bool TakePython(CallCursor& cursor, std::string& json) { return TakePythonAt(cursor, json, 0); }
bool TakeBraced(CallCursor& cursor, std::string& json) { return TakeBracedAt(cursor, json, 0); }

}  // namespace kvant
