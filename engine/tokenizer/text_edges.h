// White space at the ends of a text, as Python's strip() takes it away.
//
// Thread-safety: free functions without state.
#pragma once

#include <string_view>

namespace kvant {

// Bytes of the white space that a text begins with. Only whole characters count.
size_t LeadingWhite(std::string_view text);

// The text without white space at its ends.
std::string_view TrimText(std::string_view text);

}  // namespace kvant
