// The options of llama.cpp that mean nothing here.
#pragma once

#include "tools/options/command_line.h"
#include "tools/options/llama_words.h"

namespace kvant::tools {

// llama.cpp's options that mean nothing here are accepted; each one given is noted on stderr.
// `command` is kChat, kBench, kServe or kOthers.
void AddIdleOptions(OptionList& list, IdleIn command = IdleIn::kOthers);

}  // namespace kvant::tools
