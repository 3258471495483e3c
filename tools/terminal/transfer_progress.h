// The status line of commands that write large files: how much is done, how fast, how long it will
// take, and the end of the work at Ctrl+C.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

class TransferProgress {
 public:
  // `verb` is what happens to the bytes, in the past: "converted".
  explicit TransferProgress(const char* verb) : verb_(verb), status_(StatusUse::kShown) {}

  // kCancelled after Ctrl+C.
  Status Update(uint64_t bytes_done, uint64_t bytes_total, std::string_view what);

  void Clear() { status_.Clear(); }

 private:
  const char* verb_;
  StatusLine status_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace kvant::tools
