#include "tools/seq/seq_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "tools/options/option_values.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

Error WrongSeqLine(const SeqLine& line, const std::string& expected) {
  return MakeError(ErrorCode::kInvalid, "line {}: expected {}", line.number, expected);
}

Result<SeqLine> ParseSeqLine(size_t number, const std::string& text) {
  constexpr const char* kSpace = " \t\r\v\f";
  SeqLine line{number, {}};
  for (size_t i = text.find_first_not_of(kSpace); i < text.size() && text[i] != '#';
       i = text.find_first_not_of(kSpace, i)) {
    line.quoted_last = text[i] == '"';
    size_t end = text.find_first_of(" \t\r\v\f#\"", i);
    if (line.quoted_last) {
      for (end = i + 1; end < text.size() && text[end] != '"'; ++end) {
        if (text[end] == '\\') ++end;
      }
      if (end >= text.size()) return WrongSeqLine(line, "a closing quote");
      line.words.push_back(Unescape(text.substr(i + 1, end - i - 1)));
      i = end + 1;
    } else {
      end = std::min(end, text.size());
      line.words.push_back(text.substr(i, end - i));
      i = end;
    }
  }
  return line;
}

Status NeedWords(const SeqLine& line, size_t least, size_t most, const char* usage) {
  if (line.words.size() >= least && line.words.size() <= most) return {};
  return WrongSeqLine(line, fmt::format("'{}'", usage));
}

Result<int64_t> SeqNumber(const SeqLine& line, size_t i) {
  const std::string& word = line.words[i];
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) {
    return WrongSeqLine(line, fmt::format("a number, found '{}'", Visible(word)));
  }
  return value;
}

Result<int64_t> SeqCount(const SeqLine& line, size_t i) {
  KVANT_ASSIGN(const int64_t value, SeqNumber(line, i));
  if (value >= 0) return value;
  return WrongSeqLine(line, fmt::format("a count, found '{}'", value));
}

}  // namespace kvant::tools
