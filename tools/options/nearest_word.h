// A suggestion for a word that is not known: an option, a command, the name of a tensor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvant::tools {

// The known word nearest to `word` in meaning, or in spelling, or "" if none is near.
std::string Nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace kvant::tools
