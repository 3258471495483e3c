// A unigram vocabulary ("t5") from tokenizer.json, for folders of encoders, whose SentencePiece
// file has other ids or is missing.
//
// Errors name the file and the key: kNotSupported for steps that GGUF has no key for.
// Thread-safety: pure.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/convert/vocabulary.h"
#include "formats/json_object.h"

namespace kvant::convert {

// Texts have around them what the template of the file says.
Result<Vocabulary> UnigramJsonVocabulary(const formats::JsonObject& tokenizer, int64_t vocab_size);

}  // namespace kvant::convert
