// The output of kvant inspect --cpu: instruction sets, threads and libraries.
#pragma once

#include <string>

#include "base/result.h"
#include "tools/options/json.h"

namespace kvant::tools {

Result<Json> CpuJson();
std::string CpuText(const Json& cpu);

}  // namespace kvant::tools
