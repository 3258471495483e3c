// Shows what a terminal would show of the bytes that a program writes to it: rows of characters, by
// the few controls that kvant uses. A character beyond the last column is counted, since kvant
// never writes there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvant::test {

class TerminalScreen {
 public:
  explicit TerminalScreen(size_t columns) : columns_(columns) {}

  // Changes the width as a terminal that wraps nothing anew: rows stay as they are.
  void SetColumns(size_t columns) { columns_ = columns; }

  void Show(std::string_view bytes) {
    pending_ += bytes;
    while (!pending_.empty()) {
      const size_t taken = Take(pending_);
      if (taken == 0) return;
      pending_.erase(0, taken);
    }
  }

  // The rows, without blanks at their ends.
  std::vector<std::string> Rows() const {
    std::vector<std::string> out;
    for (const auto& row : rows_) {
      std::string text;
      for (const std::string& cell : row) text += cell;
      text.erase(text.find_last_not_of(' ') + 1);
      out.push_back(text);
    }
    return out;
  }
  std::string Text() const {
    std::string out;
    for (const std::string& row : Rows()) out += row + "\n";
    return out;
  }
  size_t row() const { return row_; }
  size_t column() const { return column_; }
  size_t beyond() const { return beyond_; }

 private:
  static size_t Columns(std::string_view character) {
    const auto first = static_cast<unsigned char>(character.front());
    if (character.size() == 4) return first == 0xf0 ? 2 : 1;  // emoji
    // CJK from U+2E80 on.
    return character.size() == 3 && (first > 0xe2 || character >= "\xe2\xba\x80") &&
                   character < "\xef\xb8\x80"
               ? 2
               : 1;
  }

  size_t Take(const std::string& bytes) {
    const char first = bytes.front();
    if (first == '\x1b') return TakeSequence(bytes);
    if (first == '\r') {
      column_ = 0;
      return 1;
    }
    if (first == '\n') {
      ++row_;
      return 1;
    }
    const auto byte = static_cast<unsigned char>(first);
    const size_t length = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    if (bytes.size() < length) return 0;
    Put(bytes.substr(0, length));
    return length;
  }

  void Put(const std::string& character) {
    const size_t width = Columns(character);
    if (column_ + width > columns_) ++beyond_;
    auto& row = Row();
    if (row.size() < column_ + width) row.resize(column_ + width, " ");
    row[column_] = character;
    if (width == 2) row[column_ + 1] = "";
    column_ += width;
  }

  size_t TakeSequence(const std::string& bytes) {
    if (bytes.size() < 3) return 0;
    size_t end = 2;
    while (end < bytes.size() && bytes[end] >= 0x20 && bytes[end] < 0x40) ++end;
    if (end == bytes.size()) return 0;
    const std::string number = bytes.substr(2, end - 2);
    const bool plain =
        !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
    const size_t count = plain ? std::stoul(number) : 1;
    switch (bytes[end]) {
      case 'A': row_ -= std::min(row_, count); break;
      case 'C': column_ += count; break;
      case 'D': column_ -= std::min(column_, count); break;
      case 'H': row_ = column_ = 0; break;
      case 'J':
        if (number == "2") rows_.clear();
        Row().resize(std::min(Row().size(), column_));
        rows_.resize(row_ + 1);
        break;
      case 'K': Row().resize(std::min(Row().size(), column_)); break;
      default: break;  // colours, modes
    }
    return end + 1;
  }

  std::vector<std::string>& Row() {
    if (rows_.size() <= row_) rows_.resize(row_ + 1);
    return rows_[row_];
  }

  size_t columns_;
  size_t row_ = 0;
  size_t column_ = 0;
  size_t beyond_ = 0;
  std::string pending_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kvant::test
