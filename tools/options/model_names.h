// Models that are known by a name, as seen from where the program lies: the files
// models/*/NAME.gguf of the source tree or of the data folder of an installation, which come with
// kvant, and those that `./dev models` fetches into build/models of the source tree.
#pragma once

#include <string>
#include <vector>

#include "kvant/result.h"

namespace kvant::tools {

// The path of the model that a user names: `name` itself where there is such a file, else the file
// of the model of that name. kIo, with the names that there are, where there is neither, and for a
// folder of Hugging Face, with the way to convert it.
Result<std::string> FindModel(const std::string& name);

// The names of the models that come with kvant, in order.
std::vector<std::string> ModelNames();

}  // namespace kvant::tools
