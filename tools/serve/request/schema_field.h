// JSON schemas in the bodies of requests.
//
// Thread-safety: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/request/api_error.h"

namespace kvant::tools {

// The text of a JSON schema in a body that is valid JSON. Its members keep the body's order, which
// texts that follow it have, too. `path` is where it lies in a chat's body; bodies of Responses and
// Messages have it elsewhere. `field` is where it was found. Refuses what is no schema.
Refusal FindSchema(std::string_view body, const std::vector<std::string>& path, std::string* field,
                   std::string* schema);

}  // namespace kvant::tools
