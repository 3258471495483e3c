// A place in the text of a grammar or a regular expression, by code points, and the errors that
// name it. Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvant::grammar {

class TextCursor {
 public:
  static constexpr uint32_t kEnd = UINT32_MAX;

  // `what` names the text in errors: "grammar", "regex".
  TextCursor(std::string_view what, std::string_view text) : what_(what), text_(text) {}

  // kInvalid where the text is not UTF-8.
  Status CheckUtf8() const;

  // The code point here, or kEnd. The text has passed CheckUtf8.
  uint32_t Peek() const;
  uint32_t Take();
  // Whether the text goes on with this ASCII text, which is then passed.
  bool TakeText(std::string_view ascii);
  bool StartsWith(std::string_view ascii) const { return text_.substr(at_).starts_with(ascii); }
  bool at_end() const { return at_ >= text_.size(); }
  size_t offset() const { return at_; }
  void Return(size_t offset) { at_ = offset; }
  std::string_view Since(size_t offset) const { return text_.substr(offset, at_ - offset); }

  // A whole number of digits. kInvalid if there is none or it is above `most`.
  Result<uint32_t> TakeNumber(uint32_t most);
  // A number of exactly `digits` hexadecimal digits.
  Result<uint32_t> TakeHex(int digits);

  // kInvalid: "grammar: line 3, column 7: expected X, found 'y'".
  Error Expected(std::string_view expected) const;
  Error At(std::string_view message) const;

 private:
  std::string Place() const;

  std::string_view what_;
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace kvant::grammar
