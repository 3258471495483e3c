// How a model's file asks for its texts to be searched: the entries under ARCHITECTURE.generation,
// which are a generation_config.json of Hugging Face in GGUF. A caller uses them where its own user
// asks for nothing else.
//
// Errors (kCorrupt) name the file, the key, what was expected and what was found. Thread-safety:
// pure.
#pragma once

#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "kvant/beam_options.h"

namespace kvant {

// Among the first tokens: one of the model's languages, which is to be found out.
inline constexpr TokenId kOpenLanguage = -1;

struct ModelGeneration {
  BeamOptions options;                  // what the file says; elsewhere as a search begins
  std::vector<std::string_view> names;  // of the keys that the file has, behind "generation."
  // forced_decoder_ids: what a text begins with behind the decoder's first token. There may be one
  // kOpenLanguage where the file has languages.
  std::vector<TokenId> first_tokens;

  bool Has(std::string_view name) const;
};

// Checks that token ids are in the file's vocabulary and that the options fit together. Other keys
// under ARCHITECTURE.generation are not looked at.
Result<ModelGeneration> ReadModelGeneration(const formats::GgufFile& file);

}  // namespace kvant
