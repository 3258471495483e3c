// How much a text repeats itself: its bytes over those that zlib makes of it at its usual level. A
// text of few words has a ratio below 1. Python's zlib.compress makes the same bytes.
#pragma once

#include <string_view>

namespace kvant::speech {

double CompressionRatio(std::string_view text);

}  // namespace kvant::speech
