#include "tools/options/groups/idle_options.h"

namespace kvant::tools {

void AddIdleOptions(OptionList& list, IdleIn command) {
  for (const IdleOption& option : IdleOptions()) {
    if (option.commands != IdleIn::kAll && option.commands != command) continue;
    if (option.takes_value) {
      list.IdleValue(option.names, option.reason);
    } else {
      list.IdleFlag(option.names, option.reason);
    }
  }
}

}  // namespace kvant::tools
