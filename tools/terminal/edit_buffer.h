// A text that is being typed, its cursor, and how both lie on the rows of a terminal.
//
// Invariant: the cursor is at the beginning of a cluster (text_width.h) or at the end of the text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvant::tools {

class EditBuffer {
 public:
  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }
  std::string_view before_cursor() const { return std::string_view(text_).substr(0, cursor_); }

  void Assign(std::string text);  // the cursor goes to the end
  void Insert(std::string_view text);
  // Puts `text` in place of the bytes from `begin` to the cursor.
  void ReplaceBefore(size_t begin, std::string_view text);
  void MoveTo(size_t cursor);

  void Left();
  void Right();
  void WordLeft() { cursor_ = WordBegin(); }
  void WordRight() { cursor_ = WordEnd(); }
  void LineBegin() { cursor_ = BeginOfLine(); }
  void LineEnd() { cursor_ = EndOfLine(); }
  void Backspace();
  void Delete();
  // Each returns what it has erased.
  std::string EraseToLineEnd();
  std::string EraseToLineBegin() { return EraseFrom(BeginOfLine()); }
  std::string EraseWord() { return EraseFrom(WordBegin()); }

 private:
  size_t BeginOfLine() const;
  size_t EndOfLine() const;
  size_t WordBegin() const;
  size_t WordEnd() const;
  std::string EraseFrom(size_t begin);

  std::string text_;
  size_t cursor_ = 0;
};

// The layout of the text on rows of `columns` columns; no cluster is cut.
struct EditLayout {
  struct Row {
    size_t begin = 0;  // bytes [begin, end) of the text, its line break excluded
    size_t end = 0;
  };
  std::vector<Row> rows;  // at least one
  size_t cursor_row = 0;
  size_t cursor_column = 0;
};

EditLayout LayOut(const EditBuffer& buffer, size_t columns);

// The beginning of the cluster of a row that `column` falls on.
size_t PlaceInRow(std::string_view text, const EditLayout::Row& row, size_t column);

}  // namespace kvant::tools
