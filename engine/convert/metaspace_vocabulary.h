// Vocabularies of merges over characters, with U+2581 for spaces and no pieces for bytes, which
// GGUF has no kind for: the kind "llama" merges whatever pair makes a piece, and llama.cpp's wants
// pieces for bytes. They become "gpt2" with a pre-tokenizer of kvant's own, whose name llama.cpp
// refuses.
//
// Errors name the file and the key. Thread-safety: pure.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/convert/tokenizer_json.h"
#include "engine/convert/vocabulary.h"

namespace kvant::convert {

// Whether a tokenizer of merges marks spaces and has no pieces for bytes.
bool HasMetaspaceMerges(const TokenizerJson& tokenizer);

// kNotSupported for steps that kvant does not have, and for vocabularies that would drop characters
// without a piece.
Result<Vocabulary> MetaspaceVocabulary(const TokenizerJson& tokenizer, int64_t vocab_size);

}  // namespace kvant::convert
