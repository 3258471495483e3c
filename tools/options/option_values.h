// The values of options as they are typed: sizes, and texts with escapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvant::tools {

// "500M", "2GB", "4.5GiB", "1500000000": K, M and G, also with a B, are powers of 1000, KiB, MiB
// and GiB of 1024. Nothing if it is no size above 0.
std::optional<uint64_t> ParseSize(std::string_view text);

// ParseSize for OptionList::Checked; the error gives `example`, as "500M or 2GiB".
Status TakeSize(std::string_view text, std::string_view example, uint64_t* bytes);

// \n, \t, \r, \', \", \\ and \xHH become the bytes they stand for; other backslashes stay.
std::string Unescape(const std::string& text);

}  // namespace kvant::tools
