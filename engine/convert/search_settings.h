// How an encoder-decoder's texts are searched, as Hugging Face's generate reads it from
// generation_config.json or, where a folder has none, from config.json: the keys
// "<architecture>.generation.*" of engine/generate/model_generation.h.
//
// Thread-safety: pure.
#pragma once

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/convert/special_tokens.h"

namespace kvant::convert {

// Bad words of one token become suppressed tokens; longer ones are left out with a warning.
// kCorrupt for values of another type or out of range.
Status AddSearchSettings(const FolderConfig& config, int64_t vocab, arch::Parameters& out);

}  // namespace kvant::convert
