// The options of llama.cpp that mean nothing here.
#pragma once

#include "tools/options/command_line.h"

namespace kvant::tools {

// llama.cpp's options that mean nothing here are accepted; each one given is noted on stderr.
void AddIdleOptions(OptionList& list);

}  // namespace kvant::tools
