#include "tools/options/groups/idle_options.h"

#include "tools/options/llama_words.h"

namespace kvant::tools {

void AddIdleOptions(OptionList& list) {
  for (const IdleOption& option : IdleOptions()) {
    if (option.takes_value) {
      list.IdleValue(option.names, option.reason);
    } else {
      list.IdleFlag(option.names, option.reason);
    }
  }
}

}  // namespace kvant::tools
