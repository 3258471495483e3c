// The config.json, generation_config.json and tokenizer_config.json that a Hugging Face folder of
// the same model would have, made of what a CTranslate2 folder says: the shapes and scalars of
// model.bin, config.json and the lists of tokens.
//
// The class follows from how the model is built: places of norms, distances for positions, and
// whether texts begin with zeros instead of a token. Source: the converters and layers of
// CTranslate2. Errors name the file and the variable or key: kNotSupported for a model that no
// class of kvant computes, kCorrupt for settings that contradict each other. Thread-safety: pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "engine/convert/ctranslate2/token_lists.h"
#include "formats/ctranslate2.h"
#include "formats/json_object.h"

namespace kvant::convert {

struct ClassConfig {
  formats::JsonObject model;
  formats::JsonObject generation;
  formats::JsonObject tokenizer;
  // Texts begin with zeros: the embeddings get a last row of zeros for a token that begins them.
  bool has_zero_token = false;
};

// The name of that token, as Hugging Face's folders of such models have it.
inline constexpr std::string_view kZeroToken = "<pad>";

// kNotSupported for a model of a spec that cannot be converted, saying what it is.
Status CheckSpec(const formats::CTranslate2Model& model);

// `config`: config.json, an object without keys where there is none.
Result<ClassConfig> MakeClassConfig(const formats::CTranslate2Model& model,
                                    const formats::JsonObject& config, const TokenLists& lists);

}  // namespace kvant::convert
