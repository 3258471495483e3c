// Errors of a chat in the words of the interface whose request became one.
//
// Thread-safety: pure.
#pragma once

#include <span>
#include <string_view>

#include "tools/serve/request/api_error.h"

namespace kvant::tools {

struct DialectName {
  std::string_view chat;  // a field of POST /v1/chat/completions
  std::string_view own;   // the field that it came from
};

// Fields of POST /v1/messages and of POST /v1/responses that have other names than in chats.
inline constexpr DialectName kMessagesNames[] = {{"stop", "stop_sequences"},
                                                 {"reasoning_effort", "output_config.effort"},
                                                 {"response_format", "output_config.format"}};
inline constexpr DialectName kResponsesNames[] = {{"max_completion_tokens", "max_output_tokens"},
                                                  {"reasoning_effort", "reasoning.effort"},
                                                  {"response_format", "text.format"},
                                                  {"messages", "input"}};

// The refusal with the interface's own name of the field, where it names one.
Refusal InNames(Refusal refusal, std::span<const DialectName> names);

}  // namespace kvant::tools
