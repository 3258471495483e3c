#include "engine/speech/window_cut.h"

#include <algorithm>

#include "kvant/speech.h"

namespace kvant::speech {
namespace {

constexpr int64_t kFramesPerTime = 2;

double SecondsOf(int64_t frames) {
  return static_cast<double>(frames * kSamplesPerFrame) / static_cast<double>(kSoundRate);
}

}  // namespace

WindowCut CutWindow(const SpeechTokens& tokens, std::span<const TokenId> text, int64_t seek,
                    int64_t frames) {
  const double offset = SecondsOf(seek);
  const double precision = SecondsOf(kFramesPerTime);
  const auto number = [&](TokenId token) { return int64_t{token} - tokens.first_time; };
  const auto seconds = [&](TokenId token) {
    return static_cast<double>(number(token)) * precision;
  };
  const auto is_time = [&](size_t i) { return tokens.is_time(text[i]); };
  const size_t size = text.size();
  const bool ends_in_one = size >= 2 && !is_time(size - 2) && is_time(size - 1);
  std::vector<size_t> ends;
  for (size_t i = 1; i < size; ++i) {
    if (is_time(i - 1) && is_time(i)) ends.push_back(i);
  }
  WindowCut out;
  out.advance = frames;
  if (ends.empty()) {
    double duration = SecondsOf(frames);
    const auto last = std::find_if(text.rbegin(), text.rend(),
                                   [&](TokenId token) { return tokens.is_time(token); });
    if (last != text.rend() && *last != tokens.first_time) duration = seconds(*last);
    out.parts.push_back({offset, offset + duration, 0, size});
    return out;
  }
  if (ends_in_one) ends.push_back(size);
  size_t first = 0;
  for (const size_t end : ends) {
    out.parts.push_back(
        {offset + seconds(text[first]), offset + seconds(text[end - 1]), first, end});
    first = end;
  }
  if (!ends_in_one) out.advance = number(text[first - 1]) * kFramesPerTime;
  return out;
}

}  // namespace kvant::speech
