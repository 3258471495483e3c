// Utf8Stream: text that arrives in arbitrary pieces leaves as whole characters. What is held back
// is at most 3 bytes: the start of one character that the next bytes may complete.
#include "engine/tokenizer/unicode.h"
#include "kvant/tokenizer.h"

namespace kvant {

std::string Utf8Stream::Push(std::string_view bytes) {
  pending_.append(bytes);
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const size_t valid = ValidUtf8Prefix(rest);
    out.append(rest.substr(0, valid));
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const Utf8Char c = DecodeUtf8(rest);
    if (c.state == Utf8State::kTruncated) break;
    out.append(kReplacementUtf8);
    rest.remove_prefix(c.size);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

std::string Utf8Stream::Finish() {
  if (pending_.empty()) return "";
  pending_.clear();
  return std::string(kReplacementUtf8);
}

}  // namespace kvant
