#include "tools/seq/seq_line.h"

#include <algorithm>

#include "base/result.h"
#include "tools/options/option_values.h"

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

}  // namespace kvant::tools
