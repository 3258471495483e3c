#include "tools/options/groups/idle_options.h"

namespace kvant::tools {
namespace {

bool IsIdleIn(IdleIn commands, IdleIn command) {
  switch (commands) {
    case IdleIn::kAll: return true;
    case IdleIn::kOthers: return command != IdleIn::kChat && command != IdleIn::kServe;
    case IdleIn::kNotServe: return command != IdleIn::kServe;
    case IdleIn::kTexts: return command != IdleIn::kBench;
    default: return commands == command;
  }
}

}  // namespace

void AddIdleOptions(OptionList& list, IdleIn command) {
  for (const IdleOption& option : IdleOptions()) {
    if (!IsIdleIn(option.commands, command)) continue;
    if (option.takes_value) {
      list.IdleValue(option.names, option.reason);
    } else {
      list.IdleFlag(option.names, option.reason);
    }
  }
}

}  // namespace kvant::tools
