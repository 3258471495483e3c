// The output of kvant inspect --devices: the CUDA devices that NVIDIA's driver finds.
#pragma once

#include <string>

#include "tools/options/json.h"

namespace kvant::tools {

// {driver, devices}, or {reason} where there is no driver or it does not start: for someone who
// asks what the machine offers that is an answer.
Json DevicesJson();
std::string DevicesText(const Json& devices);

}  // namespace kvant::tools
