// JSON as the commands write it: members in the order of their insertion.
//
// Thread-safety: pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kvant::tools {

using Json = nlohmann::ordered_json;

// The text of `value`, on one line or, with `indent` of 0 or more, on several. Bytes that are not
// UTF-8 become U+FFFD.
std::string Dump(const Json& value, int indent = -1);

}  // namespace kvant::tools
