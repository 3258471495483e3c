// Errors from a format, which the library's own code adds to Status and Result
// (include/kvant/result.h). The message names the file, tensor, key or flag, what was expected and
// what was found, in one line. KVANT_CHECK (base/check.h) is for our own bugs only and is never
// reachable from input.
#pragma once

#include <fmt/core.h>

#include <utility>

#include "base/check.h"
#include "kvant/result.h"

namespace kvant {

template <class... Args>
[[nodiscard]] Error MakeError(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace kvant
