// The metadata of a model's file, as JSON and as text for people.
#pragma once

#include <string>

#include "formats/gguf.h"
#include "tools/options/json.h"

namespace kvant::tools {

// Each key with its value. An array becomes {count, type, first}.
Json MetadataJson(const formats::GgufFile& file);

// Reads the values from the file, since its numbers have types that JSON has not. Long values are
// shortened.
std::string MetadataText(const formats::GgufFile& file);

}  // namespace kvant::tools
