// What a model's file recommends for `kvant run` in place of what the user has not chosen: how to
// sample (general.sampling.*), and how to search (ARCHITECTURE.generation.*).
#pragma once

#include <string>

#include "base/result.h"
#include "tools/options/command_line.h"
#include "tools/run/run_modes.h"

namespace kvant::tools {

// What was taken, as a note for the user; "" if nothing was. `list` tells what the user has chosen.
// A file that cannot be opened recommends nothing: whoever runs it will say why. kCorrupt if what
// it asks of a search makes no sense.
Result<std::string> TakeModelDefaults(const std::string& model_path, const OptionList& list,
                                      RunOptions& options);

}  // namespace kvant::tools
