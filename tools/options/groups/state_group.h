// The options of what models with recurrent layers keep.
#pragma once

#include <cstdint>
#include <optional>

#include "kvant/session_options.h"
#include "tools/options/command_line.h"

namespace kvant::tools {

struct StateGroup {
  std::optional<KvType> type;
  std::optional<int64_t> checkpoints;
  std::optional<int64_t> log;

  void Add(OptionList& list);
  void Set(SessionOptions* options) const;
};

}  // namespace kvant::tools
