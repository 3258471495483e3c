// Bodies of requests whose objects keep the order of their members. Templates write tools and
// arguments in it, as models do, and schemas in it say in which order members come.
//
// Thread-safety: pure.
#pragma once

#include <string_view>

#include "tools/options/json.h"
#include "tools/serve/request/api_error.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {

// Parses the text of `body` once more. Refuses objects that have so many members that this would
// take long.
Refusal ParseInOrder(const RequestJson& body, std::string_view text, Json* out);

// The member of this name, null where it is absent or null itself.
const Json* MemberInOrder(const Json& object, std::string_view name);

}  // namespace kvant::tools
