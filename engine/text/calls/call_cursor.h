// A place in a text of which more may come: whatever is looked for is there, is not there, or may
// still come.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvant {

inline constexpr std::string_view kCallBlanks = " \t\r\n";

// A mark without the blanks around it.
std::string_view TrimmedMark(std::string_view mark);
// The beginning of a mark up to its first blank, blanks before it left out: what a text is searched
// for.
std::string_view FirstOfMark(std::string_view mark);
// How many bytes at the end of `text` may be the beginning of `mark`, less than the whole.
size_t HeldForMark(std::string_view mark, std::string_view text);

class CallCursor {
 public:
  enum class State : uint8_t { kGood, kMore, kBad };

  explicit CallCursor(std::string_view text) : text_(text) {}

  State state() const { return state_; }
  bool is_good() const { return state_ == State::kGood; }
  size_t at() const { return at_; }
  std::string_view rest() const { return text_.substr(at_); }

  // Each moves on and returns true where the text has what is asked for. Else the state is kBad or
  // kMore, and all that follows is false, too.
  bool Mark(std::string_view mark);  // blanks in it stand for any blanks
  bool Char(char byte);
  bool Name(std::string& name);        // letters, digits and _ - . : / at least one
  bool Json(std::string_view& value);  // a whole JSON value
  bool JsonText(std::string& text);    // a whole JSON string, decoded
  bool Until(std::string_view mark, std::string& text);  // what lies before the mark, which stays
  bool Bytes(size_t count, std::string_view& bytes);
  bool Fail() {
    state_ = State::kBad;
    return false;
  }

  void Blanks();
  // Whether the byte comes next. At the end of the text the state is kMore.
  bool Sees(char byte);
  // Takes the mark if it is there; false with a good state: it is not there.
  bool Try(std::string_view mark);
  bool TryChar(char byte);

 private:
  bool Short() {
    state_ = State::kMore;
    return false;
  }

  std::string_view text_;
  size_t at_ = 0;
  State state_ = State::kGood;
};

}  // namespace kvant
