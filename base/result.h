// What the library's own code adds to Status and Result (include/kvant/result.h): errors from a
// format, and macros that return an error to the caller. The message names the file, tensor, key or
// flag, what was expected and what was found, in one line. KVANT_CHECK (base/check.h) is for our
// own bugs only and is never reachable from input.
#pragma once

#include <fmt/core.h>

#include <utility>

#include "base/check.h"
#include "base/result.h"
#include "kvant/result.h"

namespace kvant {

template <class... Args>
[[nodiscard]] Error MakeError(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace kvant

#define KVANT_CONCAT_INNER(a, b) a##b
#define KVANT_CONCAT(a, b) KVANT_CONCAT_INNER(a, b)

// Returns the error of a Status or Result expression to the caller.
#define KVANT_TRY(expression)                                    \
  do {                                                           \
    auto kvant_try_status = (expression);                        \
    if (!kvant_try_status.ok()) return kvant_try_status.error(); \
  } while (false)

// KVANT_ASSIGN(auto file, MappedFile::Open(path));  declares or assigns the value, or returns the
// error.
#define KVANT_ASSIGN(target, expression) \
  KVANT_ASSIGN_IMPL(KVANT_CONCAT(kvant_result_, __LINE__), target, expression)
#define KVANT_ASSIGN_IMPL(name, target, expression) \
  auto name = (expression);                         \
  if (!name.ok()) return name.error();              \
  target = std::move(name).value()
