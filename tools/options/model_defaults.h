// What a model's file recommends for `kvant run` in place of what the user has not chosen: how to
// sample (general.sampling.*), and how to search (ARCHITECTURE.generation.*).
#pragma once

#include <string>

#include "base/result.h"
#include "tools/options/command_line.h"
#include "tools/run/run_modes.h"

namespace kvant::tools {

// What was taken, as a note for the user; "" if nothing was. `list` tells what the user has chosen.
// kCorrupt if what the file asks of a search makes no sense.
Result<std::string> TakeModelDefaults(const Model& model, const OptionList& list,
                                      RunOptions& options);

}  // namespace kvant::tools
