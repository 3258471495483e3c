// The words that users of llama.cpp know: its options of one dash and several letters, options of
// its that mean nothing here, others that kvant cannot do yet; and suggestions for unknown words.
#pragma once

#include <string>
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

// An option that is accepted with a note on stderr that it has no effect.
struct IdleOption {
  const char* names;  // as OptionList takes them
  bool takes_value;
  const char* reason;  // "the model runs on the CPU"
};
const std::vector<IdleOption>& IdleOptions();

// The feature that an option asks for and kvant does not have ("grammars"); "" for every other
// word.
std::string_view NotPossibleYet(std::string_view option);

// The known word nearest to `word` in meaning, or in spelling, or "" if none is near.
std::string Nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace kvant::tools
