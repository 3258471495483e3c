// A WordPiece vocabulary ("bert") from tokenizer.json, or from vocab.txt of older folders, as GGUF
// spells it: entries that begin a word have U+2581 in front, the others lose their "##".
//
// Errors name the file and the key: kNotSupported for steps that BERT's tokenizer does not have.
// Thread-safety: pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/convert/vocabulary.h"
#include "formats/json_object.h"

namespace kvant::convert {

// The name of the list of tokens of older folders, a token in each line.
inline constexpr const char* kWordPieceFile = "vocab.txt";

Result<Vocabulary> WordPieceVocabulary(const formats::JsonObject& tokenizer, int64_t vocab_size);

// `tokenizer_config` says how texts are normalized, where it says so.
Result<Vocabulary> WordPieceVocabulary(const std::string& path,
                                       const formats::JsonObject& tokenizer_config,
                                       int64_t vocab_size);

}  // namespace kvant::convert
