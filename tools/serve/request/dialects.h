// Requests of Anthropic's Messages and OpenAI's Responses as requests of a chat.
//
// Fields that these interfaces have beyond a chat are left out where they change no text, and
// refused with their place where they would. Calls of tools and their results become messages.
//
// Thread-safety: pure.
#pragma once

#include <string_view>

#include "tools/serve/request/api_error.h"
#include "tools/serve/request/request_fields.h"
#include "tools/serve/request/tool_fields.h"

namespace kvant::tools {

// A chat: the body of POST /v1/chat/completions, but for its tools.
struct ChatRequest {
  RequestJson body = {};
  ToolFields tools = {};
};

// Each takes a body and its text.

// POST /v1/chat/completions.
Refusal ReadChat(const RequestJson& body, std::string_view text, ChatRequest* chat);

// POST /v1/messages.
Refusal ChatOfMessages(const RequestJson& body, std::string_view text, ChatRequest* chat);

// POST /v1/messages/count_tokens, which needs no limit to the answer.
Refusal CountedMessages(const RequestJson& body, std::string_view text, ChatRequest* chat);

// POST /v1/responses.
Refusal ChatOfResponses(const RequestJson& body, std::string_view text, ChatRequest* chat);

}  // namespace kvant::tools
