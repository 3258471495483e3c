// The lines of --prompts, and the beginning of their answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/text/languages.h"
#include "kvant/model.h"
#include "kvant/token_id.h"
#include "tools/options/json.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

// A line of --prompts: a prompt, or what is wrong with it.
struct PromptLine {
  std::optional<Json> id;  // as the line has it
  std::string text;
  std::vector<TokenId> tokens;
  std::string error;  // "" if it can be answered
};

// Reads the file: one entry for every line that is not empty.
Result<std::vector<PromptLine>> ReadPrompts(const std::string& path);

// The keys that every line of the answer begins with: "prompt", its number from 0, and its id.
Json AnswerTo(size_t number, const PromptLine& line);

// Turns the texts into tokens, which are sources where the model has an encoder. A line that does
// not fit into the context gets a line of JSON with the error, and an `error`. Returns the numbers
// of the other lines.
std::vector<size_t> CheckPrompts(const Model& model, const Translation& translation,
                                 int64_t context, std::vector<PromptLine>& prompts,
                                 ResultStream& out);

// kCorrupt if some could not be answered: how many of how many.
Status CheckAnswered(const std::string& path, std::span<const PromptLine> prompts);

}  // namespace kvant::tools
