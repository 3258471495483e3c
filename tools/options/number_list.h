// Lists and ranges of whole numbers, as llama-bench takes them: "512", "128,512", "1-4" (1 2 3 4),
// "0-8192+4096" (0 4096 8192), "1-8*2" (1 2 4 8), and lists of all three.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tools/options/command_line.h"

namespace kvant::tools {

// Joins the lists of an option that may be given several times. kInvalid names the option, what was
// expected and what was found.
Result<std::vector<int64_t>> ParseNumbers(const char* option, const std::vector<std::string>& texts,
                                          Bounds<int64_t> bounds);

// Pairs "512,128", one for each text.
Result<std::vector<std::pair<int64_t, int64_t>>> ParsePairs(const char* option,
                                                            const std::vector<std::string>& texts,
                                                            Bounds<int64_t> bounds);

// The parts of a text between commas.
std::vector<std::string> SplitList(const std::string& text);

}  // namespace kvant::tools
