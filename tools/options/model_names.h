// Models that come with kvant and are known by a name: the files models/*/NAME.gguf of the source
// tree, or of the data folder of an installation, as seen from where the program lies.
#pragma once

#include <string>

#include "kvant/result.h"

namespace kvant::tools {

// The path of the model that a user names: `name` itself where there is such a file, else the file
// of the model of that name. kIo, with the names that there are, where there is neither, and for a
// folder of Hugging Face, with the way to convert it.
Result<std::string> FindModel(const std::string& name);

}  // namespace kvant::tools
