// A text for measuring a model where the user gives none: pieces of prose, code, other languages,
// numbers and dialogue, each about half a window of SensitivityTest, the commonest kinds first.
// Written for this purpose. About 2000 tokens of a common vocabulary.
#pragma once

#include <string_view>

namespace kvant::quantize {

extern const std::string_view kCalibrationText;  // UTF-8

}  // namespace kvant::quantize
