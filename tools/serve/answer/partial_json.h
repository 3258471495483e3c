// Arguments of a call that the limit of an answer has cut.
//
// Thread-safety: pure.
#pragma once

#include <string_view>

#include "tools/options/json.h"

namespace kvant::tools {

// The beginning of a JSON object as an object: members and elements that are not complete are left
// out. An empty object for other texts.
Json WholePartOf(std::string_view text);

}  // namespace kvant::tools
