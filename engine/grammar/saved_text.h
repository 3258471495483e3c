// Descriptions of texts as JSON, for files that keep them: sessions and saved conversations.
//
// Thread-safety: pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "kvant/grammar.h"

namespace kvant::grammar {

nlohmann::ordered_json JsonOfText(const GrammarText& text);
// nullopt for what lacks a member or has a value of another type in it. Further members are left
// alone. Patterns of triggers may be absent: older files have none.
std::optional<GrammarText> TextOfJson(const nlohmann::ordered_json& json);

}  // namespace kvant::grammar
