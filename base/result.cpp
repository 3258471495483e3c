// The names of error codes, and the end of the process for broken invariants of our own.
#include "base/result.h"

#include <cstdio>
#include <cstdlib>

namespace kvant {

const char* ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid: return "INVALID";
    case ErrorCode::kNotSupported: return "NOT_SUPPORTED";
    case ErrorCode::kOutOfMemory: return "OUT_OF_MEMORY";
    case ErrorCode::kContextFull: return "CONTEXT_FULL";
    case ErrorCode::kIo: return "IO";
    case ErrorCode::kCorrupt: return "CORRUPT";
    case ErrorCode::kCancelled: return "CANCELLED";
    case ErrorCode::kBusy: return "BUSY";
    case ErrorCode::kDeadline: return "DEADLINE";
  }
  return "UNKNOWN";
}

void WrongResultAccess() { CheckFailed("the result has what is asked for", "kvant/result.h", 0); }

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "kvant: internal error at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace kvant
