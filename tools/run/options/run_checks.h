// The rules of which options of `kvant run` go together.
#pragma once

#include "base/result.h"
#include "tools/options/command_line.h"
#include "tools/options/groups/model_group.h"
#include "tools/run/options/run_options.h"

namespace kvant::tools {

// kInvalid for options that exclude each other, for options that have no effect without another
// one, and for options that do not fit the model.
Status CheckModes(const OptionList& list, const RunOptions& options,
                  const Positionals& positionals);

}  // namespace kvant::tools
