// The contents of a model's file: sizes, types, tokenizer and tensors. Each section is made as
// JSON, and as text from the JSON.
#pragma once

#include <string>

#include "formats/gguf.h"
#include "kvant/tokenizer.h"
#include "tools/options/json.h"
#include "tools/options/model_facts.h"

namespace kvant::tools {

Json ModelJson(const formats::GgufFile& file, const ModelFacts& facts);
std::string ModelText(const Json& model);

Json TokenizerJson(const formats::GgufFile& file, const TokenizerOptions& options);
std::string TokenizerText(const Json& tokenizer);

Json TensorsJson(const formats::GgufFile& file);
std::string TensorsText(const Json& tensors);

}  // namespace kvant::tools
