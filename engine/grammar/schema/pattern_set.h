// The texts within which a regular expression of ECMAScript matches somewhere, as JSON schemas mean
// `pattern`. Thread-safety: pure.
#pragma once

#include <string_view>

#include "base/result.h"
#include "engine/grammar/schema/text_set.h"

namespace kvant::grammar {

// kInvalid, with line and column, for what is not understood; kNotSupported for what takes too many
// states. Lookahead is understood directly behind a `^` that begins an alternative of the whole
// pattern, where it is an intersection or a difference.
Result<TextSet> PatternSet(std::string_view pattern);

}  // namespace kvant::grammar
