// Fuzzes the conversion of vocabularies: tokenizer.json where the input starts with a brace, else
// tokenizer.model. A vocabulary that is accepted has a text and a type for every token.
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/convert/vocabulary.h"
#include "formats/sentencepiece.h"

namespace {

constexpr int64_t kVocabSize = 64;

void Check(const kvant::Result<kvant::convert::Vocabulary>& vocabulary) {
  if (!vocabulary.ok()) return;
  const bool complete = vocabulary->tokens.size() == kVocabSize &&
                        vocabulary->types.size() == kVocabSize &&
                        (vocabulary->scores.empty() || vocabulary->scores.size() == kVocabSize);
  if (!complete) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace convert = kvant::convert;
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (data[0] == '{') {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto tokenizer = convert::TokenizerJson::Parse(text, "fuzz", kVocabSize);
    if (!tokenizer.ok()) return 0;
    Check(convert::ByteLevelVocabulary(*tokenizer, kVocabSize));
    Check(convert::SentencePieceVocabulary(*tokenizer, kVocabSize));
    return 0;
  }
  const auto model = kvant::formats::ParseSentencePiece(bytes, "fuzz");
  if (model.ok()) Check(convert::SentencePieceVocabulary(*model, "fuzz", kVocabSize));
  return 0;
}
