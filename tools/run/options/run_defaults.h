// Takes the defaults of `kvant run` from the model's file where the user has not chosen: those of
// sampling (general.sampling.*) and of beam search (ARCHITECTURE.generation.*).
#pragma once

#include <string>

#include "base/result.h"
#include "tools/options/command_line.h"
#include "tools/run/options/run_options.h"

namespace kvant::tools {

// Returns a note for the user that names the values taken; "" if none was. `list` tells what the
// user has chosen. kCorrupt if what the file asks of a search makes no sense.
Result<std::string> TakeModelDefaults(const Model& model, const OptionList& list,
                                      RunOptions& options);

}  // namespace kvant::tools
