#include "tools/terminal/word_wrap.h"

#include <fmt/format.h>

#include "tools/terminal/text_width.h"

namespace kvant::tools {
namespace {

constexpr size_t kTabColumns = 8;

}  // namespace

void WordWrap::Put(std::string_view cluster, size_t width, size_t columns, std::string& out) {
  const bool wide = width > 1;
  if (wide) EndWord();
  if (width > 0 && column_ + width > columns) {
    const bool behind_others = word_columns_ > 0 && word_columns_ < column_;
    if (behind_others && !wide) {
      out += fmt::format("\x1b[{}D\x1b[K\n{}", word_columns_, word_);
      column_ = word_columns_;
    } else {
      out += '\n';
      BeginRow();
    }
  }
  out += cluster;
  column_ += width;
  if (wide) return;
  word_ += cluster;
  word_columns_ += width;
}

std::string WordWrap::Push(std::string_view piece, size_t columns) {
  std::string out;
  for (size_t at = 0; at < piece.size();) {
    const char first = piece[at];
    if (first == '\n') {
      out += first;
      BeginRow();
      ++at;
      continue;
    }
    if (first == ' ' || first == '\t') {
      const size_t next = first == ' ' ? column_ + 1 : (column_ / kTabColumns + 1) * kTabColumns;
      EndWord();
      ++at;
      // A blank that does not fit is the break of the line.
      out += next > columns ? '\n' : first;
      column_ = next > columns ? 0 : next;
      continue;
    }
    const TextCluster cluster = ClusterAt(piece, at);
    Put(piece.substr(at, cluster.end - at), cluster.columns, columns, out);
    at = cluster.end;
  }
  return out;
}

}  // namespace kvant::tools
