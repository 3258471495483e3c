// A line of a program of `kvant seq` (tools/seq/seq_program.h). Thread-safety: pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kvant/result.h"

namespace kvant::tools {

using SeqWords = std::vector<std::string>;

// One line of a program.
struct SeqLine {
  size_t number;
  SeqWords words;
  bool quoted_last = false;  // the last word was a text in quotes
};

// kInvalid: "line 3: expected ...".
Error WrongSeqLine(const SeqLine& line, const std::string& expected);

// Words, some perhaps in quotes with the escapes of Unescape, up to the end or a #.
Result<SeqLine> ParseSeqLine(size_t number, const std::string& text);

}  // namespace kvant::tools
