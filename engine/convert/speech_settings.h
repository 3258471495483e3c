// The tokens of Whisper's texts behind the decoder's first token, as its `generate` in transformers
// 4.57.1 has them (_retrieve_init_tokens): language, task, and that there are no times.
//
// Errors name the file and the key. Thread-safety: pure.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/convert/special_tokens.h"

namespace kvant::convert {

// Adds "<architecture>.generation.forced_decoder_ids", with kOpenLanguage
// (kvant/model_defaults.h) in place of a language that is to be found out, and
// "<architecture>.languages", of which it is one. Token ids are below `vocab`.
Status AddSpeechSettings(const FolderConfig& folder, int64_t vocab, arch::Parameters& out);

}  // namespace kvant::convert
