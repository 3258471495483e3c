// `kvant run MODEL` without a prompt, on a terminal: a conversation is offered where the model
// holds some, else a note says how to give a prompt.
#pragma once

#include <optional>

#include "tools/options/command_line.h"
#include "tools/options/groups/model_group.h"
#include "tools/run/options/run_options.h"
#include "tools/run/run_modes.h"

namespace kvant::tools {

// The exit code of the command where it ends here: after a conversation, or where nothing shall be
// done; nullopt where a text is to be written from its beginning.
std::optional<int> OfferPrompt(const CommandLine& line, const RunOptions& options,
                               const Positionals& positionals, const RunModel& opened);

}  // namespace kvant::tools
