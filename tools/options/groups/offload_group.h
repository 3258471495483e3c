// The options of what a CUDA device computes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/session_options.h"
#include "tools/options/command_line.h"

namespace kvant::tools {

struct OffloadGroup {
  std::optional<Offload> what;
  std::optional<KvDevice> kv_device;
  std::vector<std::string> layers;

  void Add(OptionList& list);
  Status Set(SessionOptions* options) const;
};

}  // namespace kvant::tools
