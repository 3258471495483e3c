// The tools of a request in the form of each interface, as the library's functions take them.
//
// Thread-safety: pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kvant/tool_calls.h"
#include "tools/options/json.h"
#include "tools/serve/request/api_error.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {

struct ToolFields {
  std::string tools = {};     // a JSON array in the form of OpenAI's chats; "": there are none
  std::string callable = {};  // those of the array that an answer may call
  ToolChoice choice = {};
  std::vector<std::pair<std::string, std::string>> schemas = {};  // of each name the field
  std::vector<std::string> skipped = {};  // types of tools that the server has not

  // Whether an answer may have calls.
  bool are_used() const { return !tools.empty() && choice.kind != ToolChoice::Kind::kNone; }
};

// The fields `tools`, `tool_choice` and `parallel_tool_calls` of a chat. `ordered` is the body with
// its members in order; null where the body has no tools.
Refusal ToolsOfChat(const RequestJson& body, const Json& ordered, ToolFields* out);

// POST /v1/messages. Tools that would run on the server are refused.
Refusal ToolsOfMessages(const RequestJson& body, const Json& ordered, ToolFields* out);

// POST /v1/responses. Tools that would run on the server are skipped.
Refusal ToolsOfResponses(const RequestJson& body, const Json& ordered, ToolFields* out);

}  // namespace kvant::tools
