// The vocabularies of Whisper's folders: GPT-2's byte-level BPE, and behind it tokens for
// languages, tasks and times, of which some folders name only a part.
//
// Source of the ids: openai/whisper, tokenizer.py. Errors name the file and the key. Thread-safety:
// pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/convert/tokenizer_json.h"
#include "engine/convert/vocabulary.h"

namespace kvant::convert {

// vocab.json and merges.txt, the files of older tokenizers, as the tokenizer.json that a library
// would make of them; nothing where the folder has not both.
Result<std::optional<TokenizerJson>> ReadVocabularyAndMerges(const std::string& folder,
                                                             int64_t vocab_size);

// Gives ids that have no token yet the tokens of Whisper's vocabularies, which are known by their
// sizes: 51864 (English alone), 51865 and 51866 (one language more). Texts get nothing in front and
// nothing behind, whatever the folder says: the beginning of a transcript is the decoder's tokens.
void PlaceSpeechTokens(Vocabulary& vocabulary);

}  // namespace kvant::convert
