// Programs of `kvant seq`: one operation on named sequences per line.
#pragma once

#include <functional>
#include <string>

#include "kvant/runner.h"

namespace kvant::tools {

// Runs the lines of a program and hands `print` a line of JSON for each; false ends the program.
// The first line that fails ends it too, with an error that names it.
Status RunSequenceProgram(const std::string& text, Runner& runner, const Tokenizer& tokenizer,
                          const std::function<bool(const std::string& line)>& print);

}  // namespace kvant::tools
