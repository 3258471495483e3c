#include "tools/serve/http/chunked_body.h"

#include <algorithm>

namespace kvant::tools {
namespace {

constexpr int kSizeDigitsMax = 8;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

// Takes CR, then LF, behind which `next` comes.
ChunkedBody::State ChunkedBody::TakeLineEnd(char c, Part next) {
  if (c != (in_line_end_ ? '\n' : '\r')) return State::kWrong;
  in_line_end_ = !in_line_end_;
  if (in_line_end_) return State::kMore;
  if (part_ == Part::kLastEnd) return State::kDone;
  part_ = next;
  return State::kMore;
}

ChunkedBody::State ChunkedBody::TakeSize(char c, uint64_t body_bytes) {
  const int digit = HexDigit(c);
  if (digit >= 0) {
    if (++digits_ > kSizeDigitsMax) return State::kTooLarge;
    left_ = left_ * 16 + static_cast<uint64_t>(digit);
    return body_bytes + left_ > bytes_max_ ? State::kTooLarge : State::kMore;
  }
  if (digits_ == 0 || c != '\r') return State::kWrong;
  last_ = left_ == 0;
  part_ = Part::kSizeEnd;
  in_line_end_ = true;
  return State::kMore;
}

ChunkedBody::State ChunkedBody::Push(std::string_view bytes, std::string& body, size_t* taken) {
  size_t i = 0;
  State state = State::kMore;
  while (i < bytes.size() && state == State::kMore) {
    switch (part_) {
      case Part::kSize: state = TakeSize(bytes[i++], body.size()); break;
      case Part::kSizeEnd:
        state = TakeLineEnd(bytes[i++], last_ ? Part::kLastEnd : Part::kData);
        break;
      case Part::kData: {
        const size_t count = std::min(static_cast<size_t>(left_), bytes.size() - i);
        body.append(bytes.substr(i, count));
        i += count;
        left_ -= count;
        if (left_ == 0) part_ = Part::kDataEnd;
        break;
      }
      case Part::kDataEnd:
        state = TakeLineEnd(bytes[i++], Part::kSize);
        digits_ = 0;
        break;
      case Part::kLastEnd: state = TakeLineEnd(bytes[i++], Part::kSize); break;
    }
  }
  *taken = i;
  return state;
}

}  // namespace kvant::tools
