#include "engine/tokenizer/text_edges.h"

#include "engine/tokenizer/unicode.h"
#include "kvant/tokenizer.h"

namespace kvant {
namespace {

// Unicode's white space, and the four separators of ASCII.
bool IsStripped(const Utf8Char& character) {
  const char32_t c = character.code_point;
  return character.state == Utf8State::kValid && (IsWhiteSpace(c) || (c >= 0x1C && c <= 0x1F));
}

// The place where the white space begins that a text ends with.
size_t TrailingWhite(std::string_view text) {
  size_t end = 0;
  for (size_t begin = 0; begin < text.size();) {
    const Utf8Char character = DecodeUtf8(text.substr(begin));
    begin += character.size;
    if (!IsStripped(character)) end = begin;
  }
  return end;
}

}  // namespace

size_t LeadingWhite(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const Utf8Char character = DecodeUtf8(text.substr(size));
    if (!IsStripped(character)) break;
    size += character.size;
  }
  return size;
}

std::string_view TrimText(std::string_view text) {
  text.remove_prefix(LeadingWhite(text));
  return text.substr(0, TrailingWhite(text));
}

std::string TrimStream::Push(std::string_view text) {
  if (!begun_) text.remove_prefix(LeadingWhite(text));
  if (text.empty()) return "";
  begun_ = true;
  const size_t end = TrailingWhite(text);
  if (end == 0) {
    held_ += text;
    return "";
  }
  std::string out = std::move(held_);
  out += text.substr(0, end);
  held_ = text.substr(end);
  return out;
}

}  // namespace kvant
