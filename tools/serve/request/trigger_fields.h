// The triggers of lazy grammars in requests, as llama-server has them.
//
// Thread-safety: pure.
#pragma once

#include <string>

#include "kvant/grammar.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {

// A list of objects with a type, 0 for a token, 1 for a word, 2 for a pattern, 3 for a full
// pattern, and a value, which is a token's id or a text.
Refusal ReadTriggers(const std::string& name, const RequestJson& list, GrammarTriggers* out);

// Gives the grammar of a request its triggers. Refuses a lazy grammar without triggers, triggers of
// one that is not lazy, and a lazy one that is not there.
Refusal TakeLazyGrammar(TextFields& fields);

}  // namespace kvant::tools
