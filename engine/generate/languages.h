// The languages of a model that translates between several, by the keys of its file, which kvant's
// converter writes: "<architecture>.languages", the tokens; "source_language", "before" or "behind"
// the source; "target_language", "first" in place of the decoder's first token or "forced" behind
// it.
//
// Thread-safety: plain data.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kvant/model.h"
#include "kvant/runner.h"

namespace kvant {

enum class SourceLanguage : uint8_t { kBefore, kBehind };
enum class TargetLanguage : uint8_t { kFirst, kForced };

struct Languages {
  std::vector<TokenId> tokens;  // empty: the model has none
  SourceLanguage source = SourceLanguage::kBefore;
  TargetLanguage target = TargetLanguage::kForced;
};

// kCorrupt for tokens outside the vocabulary and other words than those above.
Result<Languages> ReadLanguages(const Model& model);

// The token of a language by its name, "de_DE" or "de" for "<|de|>", or by its beginning where no
// other language has it, "de". kInvalid, with the known ones, for another name.
Result<TokenId> FindLanguage(const Model& model, const Languages& languages, std::string_view name);

// The language that is the likeliest token behind the first one of a text of these frames; the
// source is known to the runner afterwards. kCorrupt for a model without languages; errors of the
// runner, which needs room for one more sequence.
Result<TokenId> LikeliestLanguage(Runner& runner, const Languages& languages,
                                  std::span<const float> frames, TokenId first);

}  // namespace kvant
