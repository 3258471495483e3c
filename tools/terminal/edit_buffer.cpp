#include "tools/terminal/edit_buffer.h"

#include <algorithm>
#include <utility>

#include "tools/terminal/text_width.h"

namespace kvant::tools {
namespace {

// Words are what blanks and line breaks separate.
bool IsBlank(char byte) { return byte == ' ' || byte == '\t' || byte == '\n'; }

}  // namespace

void EditBuffer::Assign(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void EditBuffer::Insert(std::string_view text) {
  text_.insert(cursor_, text);
  MoveTo(cursor_ + text.size());
}

void EditBuffer::ReplaceBefore(size_t begin, std::string_view text) {
  EraseFrom(begin);
  Insert(text);
}

// Text that was inserted may have joined the clusters around it, but none across a line break.
void EditBuffer::MoveTo(size_t cursor) {
  cursor_ = std::min(cursor, text_.size());
  const size_t wanted = cursor_;
  cursor_ = BeginOfLine();
  while (cursor_ < wanted) cursor_ = ClusterAt(text_, cursor_).end;
}

void EditBuffer::Left() { cursor_ = PreviousCluster(text_, cursor_); }
void EditBuffer::Right() { cursor_ = NextCluster(text_, cursor_); }

void EditBuffer::Backspace() { EraseFrom(PreviousCluster(text_, cursor_)); }

void EditBuffer::Delete() {
  const size_t end = NextCluster(text_, cursor_);
  text_.erase(cursor_, end - cursor_);
}

std::string EditBuffer::EraseToLineEnd() {
  size_t end = EndOfLine();
  if (end == cursor_ && end < text_.size()) ++end;  // the line break itself
  std::string erased = text_.substr(cursor_, end - cursor_);
  text_.erase(cursor_, end - cursor_);
  return erased;
}

std::string EditBuffer::EraseFrom(size_t begin) {
  std::string erased = text_.substr(begin, cursor_ - begin);
  text_.erase(begin, cursor_ - begin);
  cursor_ = begin;
  return erased;
}

size_t EditBuffer::BeginOfLine() const {
  const size_t line_break = before_cursor().rfind('\n');
  return line_break == std::string_view::npos ? 0 : line_break + 1;
}

size_t EditBuffer::EndOfLine() const {
  const size_t line_break = text_.find('\n', cursor_);
  return line_break == std::string::npos ? text_.size() : line_break;
}

size_t EditBuffer::WordBegin() const {
  size_t at = cursor_;
  while (at > 0 && IsBlank(text_[at - 1])) --at;
  while (at > 0 && !IsBlank(text_[at - 1])) --at;
  return at;
}

size_t EditBuffer::WordEnd() const {
  size_t at = cursor_;
  while (at < text_.size() && IsBlank(text_[at])) ++at;
  while (at < text_.size() && !IsBlank(text_[at])) ++at;
  return at;
}

EditLayout LayOut(const EditBuffer& buffer, size_t columns) {
  const std::string& text = buffer.text();
  EditLayout out;
  out.rows.emplace_back();
  size_t used = 0;
  for (size_t at = 0;;) {
    const bool ended = at == text.size();
    const TextCluster cluster = ended ? TextCluster{at, at, 0} : ClusterAt(text, at);
    const bool line_break = !ended && text[at] == '\n';
    if (!line_break && used > 0 && used + cluster.columns > columns) {
      out.rows.push_back({at, at});
      used = 0;
    }
    if (at == buffer.cursor()) {
      out.cursor_row = out.rows.size() - 1;
      out.cursor_column = used;
    }
    if (ended) return out;
    at = cluster.end;
    if (line_break) {
      out.rows.push_back({at, at});
      used = 0;
    } else {
      out.rows.back().end = at;
      used += cluster.columns;
    }
  }
}

size_t PlaceInRow(std::string_view text, const EditLayout::Row& row, size_t column) {
  size_t at = row.begin;
  for (size_t used = 0; at < row.end;) {
    const TextCluster cluster = ClusterAt(text, at);
    used += cluster.columns;
    if (used > column) break;
    at = cluster.end;
  }
  return at;
}

}  // namespace kvant::tools
