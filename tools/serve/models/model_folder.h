// The models of a folder: files NAME.gguf in it, and NAME/NAME.gguf in its folders, as `./dev
// models` lays them. A model of several shards is known by its first one, without the number.
//
// Thread-safety: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvant::tools {

struct FolderModel {
  std::string name;
  std::string path;
  uint64_t bytes = 0;  // of all its files
};

// In the order of names; of two files with one name the one in the folder itself counts. kIo where
// the folder cannot be read.
Result<std::vector<FolderModel>> ModelsIn(const std::string& folder);

}  // namespace kvant::tools
