#include "kvant/stop_text.h"

#include <algorithm>
#include <utility>

namespace kvant {
namespace {

// The length of the longest end of `text` that is a proper beginning of `stop_text`.
size_t OverlapAtEnd(std::string_view text, std::string_view stop_text) {
  for (size_t length = std::min(text.size(), stop_text.size() - 1); length > 0; --length) {
    if (stop_text.starts_with(text.substr(text.size() - length))) return length;
  }
  return 0;
}

}  // namespace

StopTextFilter::StopTextFilter(std::vector<std::string> stop_texts)
    : stop_texts_(std::move(stop_texts)) {
  std::erase(stop_texts_, "");
}

std::string StopTextFilter::Push(std::string_view bytes) {
  if (stopped_) return "";
  pending_ += bytes;
  // The stop text that ends first wins; where several end together, the one that begins first.
  size_t stop_end = std::string::npos;
  size_t stop_begin = std::string::npos;
  for (const std::string& stop_text : stop_texts_) {
    const size_t begin = pending_.find(stop_text);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop_text.size();
    if (end < stop_end || (end == stop_end && begin < stop_begin)) {
      stop_end = end;
      stop_begin = begin;
    }
  }
  if (stop_begin != std::string::npos) {
    stopped_ = true;
    pending_.resize(stop_begin);
    return std::exchange(pending_, "");
  }
  size_t held = 0;
  for (const std::string& stop_text : stop_texts_) {
    held = std::max(held, OverlapAtEnd(pending_, stop_text));
  }
  std::string shown = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, shown.size());
  return shown;
}

std::string StopTextFilter::Finish() { return stopped_ ? "" : std::exchange(pending_, ""); }

}  // namespace kvant
