#include "engine/embed/prompts.h"

#include <algorithm>

#include "base/result.h"

namespace kvant::embed {
namespace {

const EmbedPrompt* FindPrompt(const Prompts& prompts, std::string_view name) {
  const auto found = std::ranges::find(prompts.list, name, &EmbedPrompt::name);
  return found == prompts.list.end() ? nullptr : &*found;
}

}  // namespace

Result<std::string_view> Prompts::TextOf(std::string_view name) const {
  if (name.empty() && default_name.empty()) return std::string_view();
  const EmbedPrompt* prompt = FindPrompt(*this, name.empty() ? default_name : name);
  if (prompt != nullptr) return std::string_view(prompt->text);
  std::string names;
  for (const EmbedPrompt& each : list) {
    names += (names.empty() ? "" : ", ") + each.name;
  }
  return MakeError(ErrorCode::kInvalid, "prompt \"{}\": expected {}, found none of this name", name,
                   names.empty() ? "no name, since the file has no prompts" : "one of " + names);
}

Result<Prompts> ReadPrompts(const formats::GgufFile& file) {
  using formats::GgufType;
  KVANT_ASSIGN(const auto* names, file.GetArray(kPromptNamesKey, GgufType::kString));
  KVANT_ASSIGN(const auto* texts, file.GetArray(kPromptTextsKey, GgufType::kString));
  KVANT_ASSIGN(const auto default_name, file.GetString(kDefaultPromptKey));
  Prompts prompts;
  const uint64_t count = names == nullptr ? 0 : names->count;
  if (count != (texts == nullptr ? 0 : texts->count)) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {} texts, found {}", file.path(),
                     kPromptTextsKey, count, texts == nullptr ? 0 : texts->count);
  }
  for (uint64_t i = 0; i < count; ++i) {
    prompts.list.push_back({std::string(names->strings[i]), std::string(texts->strings[i])});
  }
  prompts.default_name = default_name.value_or("");
  if (!prompts.default_name.empty() && FindPrompt(prompts, prompts.default_name) == nullptr) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected one of the names, found \"{}\"",
                     file.path(), kDefaultPromptKey, prompts.default_name);
  }
  return prompts;
}

}  // namespace kvant::embed
