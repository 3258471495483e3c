// Takes the settings for sampling from the model's file (general.sampling.*) where the user has not
// chosen.
#pragma once

#include <string>

#include "kvant/model.h"
#include "tools/options/command_line.h"
#include "tools/options/groups/sampling_group.h"

namespace kvant::tools {

// Returns a note for the user that names the values taken; "" if none was. `list` tells what the
// user has chosen.
std::string TakeModelSampling(const Model& model, const OptionList& list, SamplingGroup& sampling);

}  // namespace kvant::tools
