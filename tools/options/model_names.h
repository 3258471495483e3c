// Models that come with kvant and are known by a name: the files models/*/NAME.gguf of the source
// tree, or of the data folder of an installation, as seen from where the program lies.
#pragma once

#include <string>

namespace kvant::tools {

// The path of the model that `name` means: `name` itself if there is such a file, or if it looks
// like a path, or if no model has that name.
std::string ModelPath(const std::string& name);

// Why there is no model at what ModelPath gave, where more can be said than that there is none: an
// unknown name, or a Hugging Face folder. "" otherwise.
std::string NoModelHint(const std::string& path);

}  // namespace kvant::tools
