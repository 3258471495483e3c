#include "tools/options/groups/state_group.h"

#include <string>

#include "base/result.h"
#include "engine/limits.h"
#include "kvant/kv_type.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

void StateGroup::Add(OptionList& list) {
  const auto take = [this](const std::string& text) -> Status {
    if (text != "f32" && text != "f16") {
      return MakeError(ErrorCode::kInvalid, "expected f32 or f16, found '{}'", Visible(text));
    }
    KVANT_ASSIGN(type, ParseKvType(text));
    return {};
  };
  list.Checked("--state-type", take, "TYPE",
               "For models with recurrent layers: type of the states of their scans, f32 or f16, "
               "which takes half the memory",
               "f32");
  list.Integer("--state-checkpoints", &checkpoints, {0, kStateCheckpointsMax},
               "For models with recurrent layers: most earlier states to keep of a sequence, so "
               "that a rewind need not begin at the first token",
               std::to_string(kDefaultStateCheckpoints));
  list.Integer("--state-log", &log, {0, kStateLogMax},
               "For models with recurrent layers: keep the state updates of the last N tokens, so "
               "that a rewind over these tokens computes no token again",
               "0");
}

void StateGroup::Set(SessionOptions* options) const {
  options->state_type = type.value_or(options->state_type);
  options->state_checkpoints = checkpoints.value_or(options->state_checkpoints);
  options->state_log = log.value_or(options->state_log);
}

}  // namespace kvant::tools
