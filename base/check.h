// KVANT_CHECK: an invariant of our own code. A failure is a bug of kvant, never of the input, and
// ends the process with the place and the condition. Input errors go through base/result.h. The
// place has no folder, so that a program has the same bytes wherever its sources lie.
#pragma once

namespace kvant {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace kvant

#define KVANT_CHECK(condition)                                                   \
  do {                                                                           \
    if (!(condition)) ::kvant::CheckFailed(#condition, __FILE_NAME__, __LINE__); \
  } while (false)
