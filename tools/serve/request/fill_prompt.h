// Prompts by which a model fills the gap between two texts, as llama-server makes them:
//   [REPOSITORY]myproject [FILE]NAME text [FILE]NAME text ... [FILE]filename
//   [PREFIX]text before the gap, its beginning [SUFFIX]text behind the gap [MIDDLE]
// The first line has what the model has tokens for. Texts never become control tokens.
//
// Thread-safety: pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/tokenizer/fill_tokens.h"
#include "kvant/tokenizer.h"
#include "tools/serve/request/api_error.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {

struct GapText {
  std::string prefix = {};
  std::string suffix = {};
  std::string begun = {};                                       // of what fills the gap
  std::vector<std::pair<std::string, std::string>> files = {};  // name and text, of others
};

// The fields input_prefix, input_suffix, prompt and input_extra.
Refusal ReadGap(const RequestJson& body, GapText* out);

// 501 where a model has not the tokens for gaps.
Refusal CheckFills(const FillTokens& tokens);

// The prompt, of at most `tokens_max` tokens: -1 is no limit. Where the texts are longer, the end
// of the prefix has three quarters of the room (or of kGapTokensMax tokens, if that is less), and
// the beginning of the suffix the rest; a text that needs less leaves its room to the other. The
// further files have what is left, their end stays. 400 where not even the text that has begun
// fits.
inline constexpr int64_t kGapTokensMax = 2048;
Refusal MakeGapPrompt(const Tokenizer& tokenizer, const FillTokens& tokens, const GapText& gap,
                      int64_t tokens_max, std::vector<TokenId>* out);

// The names of tokens that end a gap's text but are text to the tokenizer.
std::vector<std::string> GapEnds(const Tokenizer& tokenizer, const FillTokens& tokens);

}  // namespace kvant::tools
