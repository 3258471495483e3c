#include "tools/run/prompt_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/counted.h"
#include "base/result.h"
#include "formats/json.h"
#include "kvant/prompt.h"
#include "tools/options/groups/text_group.h"

namespace kvant::tools {
namespace {

// Reads a line, {"prompt": TEXT} with an "id" if wanted. Returns its fault, or "".
std::string ReadLine(const std::string& text, PromptLine* line) {
  if (text.find('\0') != std::string::npos) return "expected JSON, found a NUL byte";
  auto entry = formats::ParseJson(text, "line");
  if (!entry.ok()) return "expected {\"prompt\": TEXT}, found what is not valid JSON";
  const Json& object = *entry;
  if (!object.is_object() || !object.contains("prompt") || !object["prompt"].is_string()) {
    return "expected {\"prompt\": TEXT}";
  }
  if (object.contains("id")) line->id = object["id"];
  for (const auto& [key, value] : object.items()) {
    if (key != "prompt" && key != "id") {
      return fmt::format("expected the keys \"prompt\" and \"id\", found \"{}\"", Visible(key));
    }
  }
  line->text = object["prompt"].get<std::string>();
  return "";
}

}  // namespace

Result<std::vector<PromptLine>> ReadPrompts(const std::string& path) {
  TextGroup source;
  source.file = path;
  KVANT_ASSIGN(const auto text, source.Read({}));
  std::istringstream file(*text);
  std::vector<PromptLine> prompts;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    PromptLine& prompt = prompts.emplace_back();
    const std::string error = ReadLine(line, &prompt);
    if (!error.empty()) prompt.error = fmt::format("line {}: {}", number, error);
  }
  if (prompts.empty()) return MakeError(ErrorCode::kInvalid, "{}: no prompts", path);
  return prompts;
}

Json AnswerTo(size_t number, const PromptLine& line) {
  Json out = {{"prompt", number}};
  if (line.id.has_value()) out["id"] = *line.id;
  return out;
}

std::vector<size_t> CheckPrompts(const Model& model, const Translation& translation,
                                 int64_t context, std::vector<PromptLine>& prompts,
                                 ResultStream& out) {
  std::vector<size_t> good;
  for (size_t i = 0; i < prompts.size(); ++i) {
    PromptLine& line = prompts[i];
    if (line.error.empty()) {
      auto tokens = model.has_encoder() ? EncodeSource(model, translation, line.text)
                                        : PromptTokens(model.tokenizer(), line.text);
      if (!tokens.ok()) {
        line.error = tokens.error().message;
      } else if (std::ssize(*tokens) > context) {
        line.error = fmt::format("the prompt has {}, but the {} has room for {}",
                                 Counted(tokens->size(), "token"),
                                 model.has_encoder() ? "encoder" : "context", context);
      } else {
        line.tokens = std::move(*tokens);
      }
    }
    if (line.error.empty()) {
      good.push_back(i);
      continue;
    }
    Json answer = AnswerTo(i, line);
    answer["error"] = line.error;
    out.Write(Dump(answer) + "\n");
  }
  return good;
}

Status CheckAnswered(const std::string& path, std::span<const PromptLine> prompts) {
  const auto wrong = std::count_if(prompts.begin(), prompts.end(),
                                   [](const PromptLine& line) { return !line.error.empty(); });
  if (wrong == 0) return {};
  return MakeError(ErrorCode::kCorrupt, "{}: {} of {} prompts could not be answered: see \"error\"",
                   path, wrong, prompts.size());
}

}  // namespace kvant::tools
