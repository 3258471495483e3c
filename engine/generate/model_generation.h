// How a model's file asks for its texts to be searched: the entries under ARCHITECTURE.generation,
// which are a generation_config.json of Hugging Face in GGUF. A caller uses them where its own user
// asks for nothing else.
//
// Errors (kCorrupt) name the file, the key, what was expected and what was found. Thread-safety:
// pure.
#pragma once

#include "formats/gguf.h"
#include "kvant/model_defaults.h"

namespace kvant {

// Checks that token ids are in the file's vocabulary and that the options fit together. Other keys
// under ARCHITECTURE.generation are not looked at.
Result<ModelGeneration> ReadModelGeneration(const formats::GgufFile& file);

}  // namespace kvant
