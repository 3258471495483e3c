// Calls as a model writes them in a format.
//
// Thread-safety: free functions.
#pragma once

#include <span>
#include <string>

#include "kvant/tool_calls.h"

namespace kvant {

// The text of these calls, whose arguments are JSON objects; texts that are none stand as they are.
std::string TextOfCalls(const ToolFormat& format, std::span<const ToolCall> calls);

}  // namespace kvant
