#include "kvant/prompt.h"

#include "base/result.h"

namespace kvant {

Result<std::vector<TokenId>> PromptTokens(const Tokenizer& tokenizer, std::string_view text) {
  const SpecialTokens& special = tokenizer.special();
  KVANT_ASSIGN(auto ids, tokenizer.Encode(text, {.add_special = true, .parse_special = true}));
  if (special.add_eos && !ids.empty() && ids.back() == special.eos) ids.pop_back();
  if (ids.empty() && special.bos.has_value()) ids.push_back(*special.bos);
  if (ids.empty()) {
    return MakeError(ErrorCode::kInvalid,
                     "the prompt is empty, and this model has no BOS token to start from");
  }
  return ids;
}

}  // namespace kvant
