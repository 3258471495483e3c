// The languages of a model that translates between several, and what a translation puts around its
// texts. By the keys of the model's file, which kvant's converter writes:
// "<architecture>.languages", the tokens; "source_language", "before" or "behind" the source, or
// "none" of it; "target_language", "first" in place of the decoder's first token, "forced" behind
// it, or in front of the "source"; "usual_source_language", the token where no language is named.
//
// Thread-safety: plain data.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"
#include "kvant/model.h"
#include "kvant/runner.h"

namespace kvant {

enum class SourceLanguage : uint8_t { kBefore, kBehind, kNone };
enum class TargetLanguage : uint8_t { kForced, kFirst, kSource };

struct Languages {
  std::vector<TokenId> tokens;  // empty: the model has none
  SourceLanguage source = SourceLanguage::kBefore;
  TargetLanguage target = TargetLanguage::kForced;
  std::optional<TokenId> usual_source;
};

// kCorrupt for tokens outside the vocabulary and for words other than the ones above.
Result<Languages> ReadLanguages(const formats::GgufFile& file, std::string_view architecture,
                                int32_t vocab);
Result<Languages> ReadLanguages(const Model& model);

// "de" for "__de__", ">>de<<" and "<|de|>".
std::string_view LanguageName(std::string_view token);

// The token of a language by its name, "de_DE", or by its beginning where no other language has it,
// "de". kInvalid, with the known ones or of many the nearest, for another name.
Result<TokenId> FindLanguage(const Model& model, const Languages& languages, std::string_view name);

// The language that is the likeliest token behind the first one of a text of the frames; the source
// is known to the runner afterwards. kCorrupt for a model without languages; errors of the runner,
// which needs room for one more sequence.
Result<TokenId> LikeliestLanguage(Runner& runner, const Languages& languages,
                                  std::span<const float> frames, TokenId first);
// The likeliest language of a sequence that has its source and no tokens; it has none again
// afterwards.
Result<TokenId> LikeliestLanguage(Runner& runner, const Languages& languages, SequenceId sequence,
                                  TokenId first);

struct LanguageNames {
  std::optional<std::string> source;
  std::optional<std::string> target;
};

// The tokens that languages become.
struct Translation {
  std::vector<TokenId> before_source;
  std::vector<TokenId> behind_source;
  std::optional<TokenId> first;   // what the text begins with, or nothing where the file says none
  std::optional<TokenId> forced;  // what follows it
  bool forces_language = false;   // the model's languages are forced, whether one is named or not
};

// kInvalid for unknown languages and for languages that the model has no place for.
Result<Translation> MakeTranslation(const Model& model, const LanguageNames& names);

// The tokens of a text that the encoder reads: the text's own, the ones that the tokenizer adds on
// both sides, and the languages' tokens. Control tokens are read in the text.
Result<std::vector<TokenId>> EncodeSource(const Model& model, const Translation& translation,
                                          std::string_view text);

// The tokens that the decoder reads of a text that answers a source, from its first token on, as
// with text_target of Hugging Face's tokenizers.
enum class TargetEnd : uint8_t {
  kOpen,    // the text goes on
  kClosed,  // it has its end token
};
Result<std::vector<TokenId>> EncodeTarget(const Model& model, const Translation& translation,
                                          std::string_view text, TargetEnd end);

}  // namespace kvant
