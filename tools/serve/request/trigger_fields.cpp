#include "tools/serve/request/trigger_fields.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <utility>

namespace kvant::tools {
namespace {

constexpr size_t kTriggersMax = 100;

// llama-server's numbers.
enum TriggerType : int64_t { kToken = 0, kWord = 1, kPattern = 2, kFullPattern = 3 };

}  // namespace

Refusal ReadTriggers(const std::string& name, const RequestJson& list, GrammarTriggers* out) {
  if (!list.is_array()) return WrongType(name, "a list of triggers", list);
  if (list.size() > kTriggersMax) {
    return WrongValue(
        name, fmt::format("expected at most {} triggers, found {}", kTriggersMax, list.size()));
  }
  for (const RequestJson& one : list) {
    const RequestJson* const type = Member(one, "type");
    const bool has_type =
        type != nullptr && type->is_number_integer() && *type >= kToken && *type <= kFullPattern;
    if (!has_type) return WrongType(name, "objects with a type from 0 to 3", one);
    const auto kind = type->get<int64_t>();
    const RequestJson* const value = Member(one, kind == kToken ? "token" : "value");
    if (kind == kToken) {
      const bool is_id = value != nullptr && value->is_number_integer() && *value >= 0 &&
                         *value <= std::numeric_limits<TokenId>::max();
      if (!is_id) return WrongType(name, "a token's id in the member token of type 0", one);
      out->tokens.push_back(value->get<TokenId>());
      continue;
    }
    if (value == nullptr || !value->is_string()) {
      return WrongType(name, "a text in the member value", one);
    }
    auto& texts = kind == kWord      ? out->words
                  : kind == kPattern ? out->patterns
                                     : out->full_patterns;
    texts.push_back(value->get<std::string>());
  }
  return {};
}

Refusal TakeLazyGrammar(TextFields& fields) {
  if (fields.triggers.empty() == fields.grammar_is_lazy) {
    return fields.grammar_is_lazy
               ? WrongValue("grammar_triggers", "expected triggers of the lazy grammar, found none")
               : WrongValue("grammar_triggers", "expected grammar_lazy: true with it");
  }
  if (!fields.grammar_is_lazy) return {};
  if (!fields.grammar.has_value()) return WrongValue("grammar_lazy", "expected a grammar with it");
  fields.grammar->triggers = std::move(fields.triggers);
  return {};
}

}  // namespace kvant::tools
