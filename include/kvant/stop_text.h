// Watches a stream of bytes for stop texts and holds back bytes that might become one.
//
// The first stop text that is complete ends the stream; neither it nor anything after it is shown.
// Bytes that can no longer be part of a stop text are released at once, so that the caller sees the
// text as early as possible. Thread-safety: one thread at a time per object.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvant {

class StopTextFilter {
 public:
  // Empty stop texts are ignored.
  explicit StopTextFilter(std::vector<std::string> stop_texts);

  // Adds bytes to the stream and returns the bytes that are certain to be shown. After a stop text
  // it returns nothing any more.
  std::string Push(std::string_view bytes);

  // Ends the stream and returns the bytes that were held back, since no stop text can follow.
  std::string Finish();

  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stop_texts_;
  std::string pending_;  // a proper beginning of some stop text
  bool stopped_ = false;
};

}  // namespace kvant
