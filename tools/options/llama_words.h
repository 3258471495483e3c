// The words that users of llama.cpp know: its options of one dash and several letters, options of
// its that mean nothing here, and what to do here in place of its other options and programs.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvant::tools {

// An option of one dash and several letters, which CLI11 would read as letters: "-ctk" is
// "--cache-type-k".
struct DashWord {
  const char* spelling;
  const char* name;
};
const std::vector<DashWord>& DashWords();

// The commands in which an option has no effect: all, `kvant chat`, all but that and serve, `kvant
// bench`, all but bench, `kvant serve`, or all but serve.
enum class IdleIn : uint8_t { kAll, kChat, kOthers, kBench, kTexts, kServe, kNotServe };

// An option that is accepted with a note on stderr that it has no effect. One that takes no value
// may be followed by a switch's: "--color on".
struct IdleOption {
  const char* names;  // as OptionList takes them
  bool takes_value;
  const char* reason;  // "the model runs on the CPU"
  IdleIn commands = IdleIn::kAll;
};
const std::vector<IdleOption>& IdleOptions();

// Tells what to do in place of an option that `command` does not have ("JSON schemas are not there
// yet"); "" for words that are no option of llama.cpp. `option` may end with "=VALUE".
std::string_view OptionAdvice(std::string_view command, std::string_view option);

// Tells what to do in place of a program of llama.cpp, or a command of one like it; "" for other
// words.
std::string_view CommandAdvice(std::string_view word);

// Tells what to do in place of the name or address of a model that another program would fetch; ""
// for other names.
std::string_view ModelAdvice(std::string_view name);

}  // namespace kvant::tools
