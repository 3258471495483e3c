// The tokens of a prompt, as a model wants to begin.
//
// Thread-safety: pure.
#pragma once

#include <string_view>
#include <vector>

#include "kvant/result.h"
#include "kvant/tokenizer.h"

namespace kvant {

// The text with control tokens understood and with BOS where the metadata asks for it; BOS alone if
// there is no text; never with an end token behind it, which would end the text before it begins.
// kInvalid for an empty text where the model has no BOS token.
Result<std::vector<TokenId>> PromptTokens(const Tokenizer& tokenizer, std::string_view text);

}  // namespace kvant
