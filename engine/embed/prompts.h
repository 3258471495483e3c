// The prompts that a file names for texts of several uses, as sentence-transformers' folders have
// them. Thread-safety: values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"
#include "kvant/embed.h"

namespace kvant::embed {

// Arrays of strings of one length, and one of the names; a file may lack all of them.
inline constexpr const char* kPromptNamesKey = "general.prompts.names";
inline constexpr const char* kPromptTextsKey = "general.prompts.texts";
inline constexpr const char* kDefaultPromptKey = "general.prompts.default";

struct Prompts {
  std::vector<EmbedPrompt> list;
  std::string default_name;  // "": none

  // Embedder::PromptText.
  Result<std::string_view> TextOf(std::string_view name) const;
};

// kCorrupt for arrays of different lengths, and for a default that is not among the names.
Result<Prompts> ReadPrompts(const formats::GgufFile& file);

}  // namespace kvant::embed
