// Reads what a folder says about a model beside its weights: a name for people, where it comes from
// and on what terms, and how its authors sample from it. Sources: the front matter of README.md,
// config.json and generation_config.json; keys, types and order of trust are those of llama.cpp's
// converter (gguf 0.19).
//
// Thread-safety: pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/convert/special_tokens.h"
#include "formats/gguf_writer.h"

namespace kvant::convert {

// "tiny-llama-1.1b" -> "Tiny Llama 1.1b": words for hyphens, in capitals unless they hold some
// already or begin with a digit or are a version.
std::string ReadableName(std::string_view id);

// Writes general.name (`name` unless it is ""), license, tags, languages, base models and datasets.
Status AddAuthorship(const FolderConfig& config, const std::string& name,
                     formats::GgufWriter& writer);

// Writes general.sampling.*. A value that is no number, or one out of range, is left out with a
// warning.
void AddSampling(const JsonObject& generation, formats::GgufWriter& writer);

}  // namespace kvant::convert
