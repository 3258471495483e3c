#include "engine/grammar/saved_text.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace kvant::grammar {
namespace {

using TextJson = nlohmann::ordered_json;
using TextKind = GrammarText::Kind;

constexpr std::array<std::pair<TextKind, std::string_view>, 5> kKindNames = {{
    {TextKind::kGbnf, "gbnf"},
    {TextKind::kRegex, "regex"},
    {TextKind::kChoices, "choices"},
    {TextKind::kJson, "json_object"},
    {TextKind::kJsonSchema, "json_schema"},
}};

}  // namespace

TextJson JsonOfText(const GrammarText& text) {
  std::string_view kind;
  for (const auto& [number, name] : kKindNames) {
    if (number == text.kind) kind = name;
  }
  return {{"kind", kind},
          {"text", text.text},
          {"choices", text.choices},
          {"json_compact", text.json_compact},
          {"json_allows_unknown", text.json_allows_unknown},
          {"trigger_words", text.triggers.words},
          {"trigger_tokens", text.triggers.tokens},
          {"trigger_patterns", text.triggers.patterns},
          {"trigger_full_patterns", text.triggers.full_patterns}};
}

std::optional<GrammarText> TextOfJson(const TextJson& json) {
  GrammarText out;
  try {
    const auto kind = json.at("kind").get<std::string>();
    const auto* row =
        std::ranges::find_if(kKindNames, [&](const auto& one) { return one.second == kind; });
    if (row == kKindNames.end()) return std::nullopt;
    out.kind = row->first;
    json.at("text").get_to(out.text);
    json.at("choices").get_to(out.choices);
    json.at("json_compact").get_to(out.json_compact);
    json.at("json_allows_unknown").get_to(out.json_allows_unknown);
    json.at("trigger_words").get_to(out.triggers.words);
    json.at("trigger_tokens").get_to(out.triggers.tokens);
    if (json.contains("trigger_patterns") || json.contains("trigger_full_patterns")) {
      json.at("trigger_patterns").get_to(out.triggers.patterns);
      json.at("trigger_full_patterns").get_to(out.triggers.full_patterns);
    }
  } catch (const TextJson::exception&) {
    return std::nullopt;
  }
  return out;
}

}  // namespace kvant::grammar
