// A line of a program of `kvant seq` (tools/seq/seq_program.h). Thread-safety: pure.
#pragma once

#include <cstddef>
#include <cstdint>
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

// kInvalid, with the usage, where the line has fewer than `least` words or more than `most`.
Status NeedWords(const SeqLine& line, size_t least, size_t most, const char* usage);

// Word `i` as a whole number, and as one that is not below 0.
Result<int64_t> SeqNumber(const SeqLine& line, size_t i);
Result<int64_t> SeqCount(const SeqLine& line, size_t i);

}  // namespace kvant::tools
