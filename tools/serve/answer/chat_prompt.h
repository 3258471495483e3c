// The prompt of a chat, and what the server needs to read calls in its answers.
//
// Thread-safety: any thread may call.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kvant/chat.h"
#include "kvant/grammar.h"
#include "kvant/token_id.h"
#include "kvant/tool_calls.h"
#include "tools/serve/answer/served_model.h"
#include "tools/serve/request/api_error.h"
#include "tools/serve/request/dialects.h"

namespace kvant::tools {

// A prompt that is ready to be served.
struct JobPrompt {
  std::vector<TokenId> tokens;
  std::string text;  // what `echo` shows, and what the answer of a chat follows
};

// The tools that the answers to a request may call.
struct ToolUse {
  const ToolFormat* format = nullptr;  // the served model's
  std::string tools;                   // a JSON array in the form of OpenAI's chats
  std::shared_ptr<const Grammar> grammar;
  bool marks_are_control = false;  // of the format
  std::set<std::string> ids;       // of the calls in earlier messages
};

// Messages and tools through the template.
Refusal MakeChatPrompt(ServedModel& served, const ChatRequest& chat,
                       const ChatRenderOptions& render, JobPrompt* out);

// Fills what answers with calls need; nothing where a request has no tools. Refuses strict schemas
// that cannot be enforced, with the field that they are in.
Refusal PrepareTools(ServedModel& served, const ChatRequest& chat, std::optional<ToolUse>* out);

}  // namespace kvant::tools
