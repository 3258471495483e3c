// Fields that only llama-server's own interface has (/completion, /infill), and its prompts.
//
// Thread-safety: pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/tokenizer.h"
#include "tools/serve/request/api_error.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {

struct NativeFields {
  bool return_tokens = false;
  // Members of the answer that are wanted, "timings/predicted_n"; empty: all.
  std::vector<std::string> members = {};
};

// Takes the fields that ReadFields does not read, and sets those of `fields` that are theirs.
Refusal ReadNativeFields(const RequestJson& body, TextFields& fields, NativeFields* out);
// The names of these fields and of those of prompts, and of those without effect.
std::span<const std::string_view> NativeNames();

// The field `prompt`: a text, ids, texts and ids in turn, an object with a text as its
// `prompt_string`, or a list of such prompts. A prompt that begins with a text has BOS in front
// where the model asks for it.
Refusal ReadNativePrompts(const RequestJson& body, const Tokenizer& tokenizer, int32_t vocab_size,
                          std::vector<std::vector<TokenId>>* out);

}  // namespace kvant::tools
