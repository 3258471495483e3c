#include "engine/grammar/text_cursor.h"

#include <fmt/format.h>

namespace kvant::grammar {
namespace {

// The length of the code point that begins here, and its value; 0 for what is not UTF-8.
size_t DecodeUtf8(std::string_view text, uint32_t& code) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) {
    code = lead;
    return 1;
  }
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  code = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool is_overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  return is_overlong || is_surrogate || code > 0x10ffff ? 0 : length;
}

}  // namespace

Status TextCursor::CheckUtf8() const {
  uint32_t code = 0;
  for (size_t at = 0; at < text_.size();) {
    const size_t length = DecodeUtf8(text_.substr(at), code);
    if (length == 0) {
      return MakeError(ErrorCode::kInvalid, "{}: byte {}: expected UTF-8, found 0x{:02x}", what_,
                       at, static_cast<uint8_t>(text_[at]));
    }
    at += length;
  }
  return {};
}

uint32_t TextCursor::Peek() const {
  uint32_t code = kEnd;
  if (!at_end()) DecodeUtf8(text_.substr(at_), code);
  return code;
}

uint32_t TextCursor::Take() {
  uint32_t code = kEnd;
  if (!at_end()) at_ += DecodeUtf8(text_.substr(at_), code);
  return code;
}

bool TextCursor::TakeText(std::string_view ascii) {
  if (!StartsWith(ascii)) return false;
  at_ += ascii.size();
  return true;
}

Result<uint32_t> TextCursor::TakeNumber(uint32_t most) {
  const size_t begin = at_;
  uint64_t value = 0;
  while (!at_end() && text_[at_] >= '0' && text_[at_] <= '9') {
    value = value * 10 + static_cast<uint64_t>(text_[at_] - '0');
    if (value > most) {
      at_ = begin;
      return At(fmt::format("expected a number up to {}", most));
    }
    ++at_;
  }
  if (at_ == begin) return Expected("a number");
  return static_cast<uint32_t>(value);
}

Result<uint32_t> TextCursor::TakeHex(int digits) {
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const uint32_t code = Peek();
    uint32_t digit = 16;
    if (code >= '0' && code <= '9') digit = code - '0';
    if (code >= 'a' && code <= 'f') digit = code - 'a' + 10;
    if (code >= 'A' && code <= 'F') digit = code - 'A' + 10;
    if (digit == 16) return Expected(fmt::format("{} hexadecimal digits", digits));
    value = value << 4 | digit;
    Take();
  }
  return value;
}

std::string TextCursor::Place() const {
  size_t line = 1;
  size_t column = 1;
  for (size_t i = 0; i < at_; ++i) {
    if (text_[i] == '\n') {
      ++line;
      column = 1;
    } else if ((static_cast<uint8_t>(text_[i]) & 0xc0) != 0x80) {
      ++column;
    }
  }
  return fmt::format("line {}, column {}", line, column);
}

Error TextCursor::Expected(std::string_view expected) const {
  const uint32_t code = Peek();
  std::string found = "the end";
  if (code == '\n') {
    found = "the end of the line";
  } else if (code != kEnd && (code < 0x20 || code == 0x7f)) {
    found = fmt::format("character 0x{:02x}", code);
  } else if (code != kEnd) {
    TextCursor after = *this;
    after.Take();
    found = fmt::format("'{}'", after.Since(at_));
  }
  return At(fmt::format("expected {}, found {}", expected, found));
}

Error TextCursor::At(std::string_view message) const {
  return MakeError(ErrorCode::kInvalid, "{}: {}: {}", what_, Place(), message);
}

}  // namespace kvant::grammar
