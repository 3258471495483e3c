// The vocabularies of translators whose folders keep SentencePiece's pieces in one file and ids in
// another, as GGUF keys (engine/tokenizer/marian.cpp): the list of ids, the pieces that texts are
// cut into, the list and pieces of the texts that are written where they differ, and the languages.
//
// Marian: source.spm, target.spm, vocab.json, and where the decoder has a vocabulary of its own
// target_vocab.json. M2M-100: sentencepiece.bpe.model, vocab.json. NLLB: sentencepiece.bpe.model,
// whose pieces have ids in fairseq's order, or tokenizer.json alone.
//
// Errors name the file, the token or the key: kCorrupt for ids beyond the vocabulary or twice, for
// lists without the tokens that every text needs and for broken pieces. Thread-safety: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/convert/special_tokens.h"
#include "engine/convert/vocabulary.h"
#include "formats/gguf_writer.h"

namespace kvant::convert {

struct TranslatorVocabulary {
  Vocabulary list;
  Vocabulary pieces;
  std::optional<Vocabulary> target_list;
  std::optional<Vocabulary> target_pieces;
  std::vector<int32_t> languages;          // tokens
  std::optional<int32_t> source_language;  // where none is named
  // Words of engine/text/languages.h.
  std::string_view source_place;
  std::string_view target_place;

  // All but `list`, which is the model's vocabulary as any other (Vocabulary::AddTo).
  void AddTo(arch::Parameters& out) const;
};

// Nothing where the folder has no such files, but perhaps a vocabulary of another kind.
Result<std::optional<TranslatorVocabulary>> ReadTranslatorVocabulary(
    const FolderConfig& config, const arch::HfTranslator& translator, const arch::HfShape& shape);

// The pieces of SentencePiece's file in their own order, of either model, with all that is done to
// a text before it is cut.
Result<Vocabulary> PiecesVocabulary(const formats::SentencePieceModel& model,
                                    const std::string& file);

}  // namespace kvant::convert
