// Turns a prompt's text into tokens, with the BOS token that the model asks for.
//
// Thread-safety: pure.
#pragma once

#include <string_view>
#include <vector>

#include "kvant/result.h"
#include "kvant/tokenizer.h"

namespace kvant {

// Control tokens in the text become their ids, and BOS comes first where the metadata asks for it.
// An empty text gives BOS alone. No end token is appended, whatever the metadata say: it would end
// the text before it begins. kInvalid for an empty text where the model has no BOS token.
Result<std::vector<TokenId>> PromptTokens(const Tokenizer& tokenizer, std::string_view text);

}  // namespace kvant
