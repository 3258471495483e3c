// The texts of the formats that JSON schemas name (RFC 3339 for dates and times, RFC 5321, 1123,
// 2673, 4291, 3986, 4122 and 6901). Where a standard allows more than programs read, a set has the
// part that they agree on: it is never larger than the format. Thread-safety: pure.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/grammar/schema/text_set.h"

namespace kvant::grammar {

// Null for a name that is not known.
std::shared_ptr<const TextSet> FormatSet(std::string_view name);
// All names, as a message lists them.
std::string FormatNames();

}  // namespace kvant::grammar
