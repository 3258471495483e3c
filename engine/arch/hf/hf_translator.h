// How classes of translators keep their vocabularies, if not as others do, as data of their
// families: pieces in SentencePiece's files and ids in a list of their own, which
// engine/convert/translator_vocabulary.h reads. Nothing is computed here.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace kvant::arch {

enum class TranslatorFiles : uint8_t {
  kNone,
  kSourceAndTarget,  // source.spm, target.spm, vocab.json
  // sentencepiece.bpe.model and vocab.json, behind whose tokens the languages follow; or without
  // that file fairseq's order with other languages.
  kManyLanguages,
};

struct HfTranslator {
  TranslatorFiles files = TranslatorFiles::kNone;
  // Codes of languages, "de" for the token "__de__", where there is a vocab.json: the usual codes,
  // and the codes of folders whose "language_codes" name another set.
  std::span<const std::string_view> codes = {};
  std::string_view other_set = {};
  std::span<const std::string_view> other_codes = {};
  std::span<const std::string_view> fairseq_languages = {};  // tokens
  // The language that a text is read as where the caller names none.
  std::string_view usual_code = {};
  std::string_view usual_language = {};
};

}  // namespace kvant::arch
