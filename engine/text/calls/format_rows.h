// Formats of calls by name: those that a comparison of rendered texts does not show, and the marks
// by which a template has them.
//
// Thread-safety: constant after the first call.
#pragma once

#include <string_view>

#include "kvant/tool_calls.h"

namespace kvant {

// The format that the source of a template has for certain, whatever it renders; null: none.
const ToolFormat* CertainFormat(std::string_view source);
// The format whose marks the source has, for templates that render no calls; null: none.
const ToolFormat* LikelyFormat(std::string_view source);
// kvant's own, for templates that know no tools.
const ToolFormat& GenericFormat();
// The name of a format that was found by comparison.
std::string_view NameOfFound(const ToolFormat& format);

}  // namespace kvant
