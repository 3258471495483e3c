// A unigram vocabulary ("t5") from SentencePiece's file: pieces, scores, the table that normalizes
// texts and the treatment of spaces, under the keys that llama.cpp's converter of T5 gives to them.
// The tokens that folders add to the pieces depend on the class of the tokenizer and are data here.
//
// Errors name the file: kNotSupported for settings that GGUF has no key for, kCorrupt for more
// pieces than tokens or a broken table. Thread-safety: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/convert/vocabulary.h"
#include "formats/sentencepiece.h"

namespace kvant::convert {

struct UnigramOptions {
  int64_t vocab_size = 0;
  PieceOrder order = PieceOrder::kOwn;
  // Tokens behind the pieces, in order, in front of <mask>; for kFairseq.
  std::span<const std::string_view> languages = {};
  // T5's tokens <extra_id_0> to <extra_id_N-1>, which lie behind the pieces, the last first.
  int64_t extra_ids = 0;
};

// kNotSupported for what GGUF has no key for, kCorrupt for a broken table; of models of any kind.
Status CheckPieceSettings(const formats::SentencePieceModel& model, const std::string& file);

// Ids beyond the named tokens are unused. A text ends with eos and has no bos.
Result<Vocabulary> UnigramVocabulary(const formats::SentencePieceModel& model,
                                     const std::string& file, const UnigramOptions& options);

}  // namespace kvant::convert
