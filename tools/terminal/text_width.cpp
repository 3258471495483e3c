#include "tools/terminal/text_width.h"

#include <utf8proc.h>

#include <algorithm>

#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

struct CodePoint {
  utf8proc_int32_t value = -1;  // -1: a byte that is no UTF-8
  size_t bytes = 1;
};

CodePoint CodePointAt(std::string_view text, size_t at) {
  CodePoint out;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
  const auto rest = static_cast<utf8proc_ssize_t>(text.size() - at);
  const utf8proc_ssize_t read = utf8proc_iterate(bytes, rest, &out.value);
  if (read <= 0) return {};
  out.bytes = static_cast<size_t>(read);
  return out;
}

size_t ColumnsOf(utf8proc_int32_t value) {
  return static_cast<size_t>(std::max(0, utf8proc_charwidth(value)));
}

bool IsControlCharacter(const CodePoint& point) {
  return point.value < 0x20 || (point.value >= 0x7f && point.value < 0xa0);
}

}  // namespace

TextCluster ClusterAt(std::string_view text, size_t begin) {
  constexpr utf8proc_int32_t kEmojiStyle = 0xfe0f;
  CodePoint point = CodePointAt(text, begin);
  TextCluster out = {begin, begin + point.bytes, 0};
  if (IsControlCharacter(point)) {
    out.columns = point.value < 0 ? 1 : Visible(text.substr(begin, point.bytes)).size();
    return out;
  }
  out.columns = ColumnsOf(point.value);
  utf8proc_int32_t state = 0;
  while (out.end < text.size()) {
    const CodePoint next = CodePointAt(text, out.end);
    if (next.value < 0 || utf8proc_grapheme_break_stateful(point.value, next.value, &state)) break;
    // An emoji of several code points is as wide as its widest part.
    out.columns = std::max(out.columns, next.value == kEmojiStyle ? 2 : ColumnsOf(next.value));
    out.end += next.bytes;
    point = next;
  }
  return out;
}

size_t PreviousCluster(std::string_view text, size_t at) {
  // Clusters can be told from the front only; a line break is always the end of one.
  size_t begin = at;
  if (begin > 0) --begin;
  while (begin > 0 && text[begin - 1] != '\n') --begin;
  size_t before = begin;
  while (begin < at) {
    before = begin;
    begin = ClusterAt(text, begin).end;
  }
  return before;
}

size_t NextCluster(std::string_view text, size_t at) {
  return at < text.size() ? ClusterAt(text, at).end : text.size();
}

size_t TextColumns(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    const TextCluster cluster = ClusterAt(text, at);
    columns += cluster.columns;
    at = cluster.end;
  }
  return columns;
}

std::string_view CutToColumns(std::string_view text, size_t columns) {
  size_t at = 0;
  for (size_t used = 0; at < text.size();) {
    const TextCluster cluster = ClusterAt(text, at);
    used += cluster.columns;
    if (used > columns) break;
    at = cluster.end;
  }
  return text.substr(0, at);
}

std::vector<std::string> WrapToColumns(std::string_view text, size_t columns, size_t indent) {
  std::vector<std::string> lines;
  const size_t deeper = indent <= columns / 2 ? indent : std::min<size_t>(2, columns / 2);
  std::string front;
  do {
    std::string_view line = CutToColumns(text, columns - front.size());
    if (line.empty()) line = text.substr(0, NextCluster(text, 0));
    if (line.size() < text.size() && text[line.size()] != ' ') {
      const size_t word = line.rfind(' ');
      if (word != std::string_view::npos && word > 0) line = line.substr(0, word);
    }
    text.remove_prefix(line.size());
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    line = line.substr(0, line.find_last_not_of(' ') + 1);
    lines.push_back(front + std::string(line));
    front.assign(deeper, ' ');
  } while (!text.empty());
  return lines;
}

}  // namespace kvant::tools
