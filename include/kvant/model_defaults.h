// The options that a model's file recommends where a user asks for nothing else: Model::defaults().
//
// Thread-safety: values, constant once a model is open.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/beam_options.h"
#include "kvant/result.h"
#include "kvant/sampler.h"
#include "kvant/token_id.h"

namespace kvant {

// Among the first tokens: one of the model's languages, which is to be found out.
inline constexpr TokenId kOpenLanguage = -1;

// The entries under ARCHITECTURE.generation, which are a generation_config.json of Hugging Face in
// GGUF.
struct ModelGeneration {
  BeamOptions options;                  // what the file says; elsewhere as a search begins
  std::vector<std::string_view> names;  // of the keys that the file has, behind "generation."
  // forced_decoder_ids: what a text begins with behind the decoder's first token. There may be one
  // kOpenLanguage where the file has languages.
  std::vector<TokenId> first_tokens;

  bool Has(std::string_view name) const;
};

// A number for sampling that the file names, within the range of the setting.
struct RecommendedNumber {
  std::string_view name;  // as messages have it: "top-p"
  double value;
};

struct ModelDefaults {
  // The entries under general.sampling; settings that the file does not name have their usual
  // values, and so has the chain of samplers.
  SamplingOptions sampling = {};
  std::vector<RecommendedNumber> sampling_numbers = {};  // of these, in the order of the file
  // With the model's end tokens. kCorrupt, with the key, where the file asks for what makes no
  // sense; the model can be used all the same.
  Result<ModelGeneration> search = ModelGeneration();
  std::vector<TokenId> end_tokens = {};  // tokens that end a text
  // The source of the chat template (ChatTemplate::OfModel); nothing where the file has none.
  std::optional<std::string_view> chat_template = {};  // valid as long as the model
};

}  // namespace kvant
