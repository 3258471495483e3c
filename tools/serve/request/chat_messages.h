// The messages of a chat request, as templates read them.
//
// Thread-safety: pure.
#pragma once

#include <string>

#include "formats/json.h"
#include "tools/serve/request/api_error.h"

namespace kvant::tools {

struct ChatMessages {
  std::string json = {};          // the array for ChatTemplate::RenderJson
  std::string continuation = {};  // a last message of the assistant, which the answer goes on with
  bool continues = false;
  bool has_calls = false;  // or results of calls
};

// The field `messages`. Contents in parts of text become one text, `developer` becomes `system`,
// and a last message of the assistant without calls is taken off the array. Refuses other parts,
// roles and types, with the place: "messages[2].content".
Refusal ReadMessages(const formats::Json& body, ChatMessages* out);

}  // namespace kvant::tools
