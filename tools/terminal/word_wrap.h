// Breaks a text that comes piece by piece between its words, for a terminal that would break it
// inside of a word.
//
// A word is shown as it comes. Where it does not fit on its row, it is taken back from there and
// shown again on the next row. Characters of two columns, which are written without blanks, may be
// parted from each other.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvant::tools {

class WordWrap {
 public:
  // The bytes to write for the next piece of the text, so that no row has more than `columns`
  // columns. Of control characters the piece may have line breaks and tabs.
  std::string Push(std::string_view piece, size_t columns);

  // The next piece begins a row.
  void BeginRow() {
    column_ = 0;
    EndWord();
  }

 private:
  void Put(std::string_view cluster, size_t width, size_t columns, std::string& out);
  void EndWord() {
    word_.clear();
    word_columns_ = 0;
  }

  size_t column_ = 0;
  std::string word_;  // at the end of the row, as far as it is known
  size_t word_columns_ = 0;
};

}  // namespace kvant::tools
