// Reads the head of a request: the request line and the headers.
//
// The rules are stricter than those of RFC 9112, so that no proxy in front can read a request in
// another way: lines end with CR LF, header lines are not folded, names are tokens directly before
// their colon. The length of a body is told by one Content-Length of digits or by one
// Transfer-Encoding that is `chunked`, never by both. HTTP/1.1 has one Host. Whatever differs is
// refused, and the connection closed.
//
// Thread-safety: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/serve/http/http_message.h"

namespace kvant::tools {

// More of any of these is refused with 414 or 431. Browsers and agents need less than a tenth.
inline constexpr size_t kTargetBytesMax = 8192;
inline constexpr size_t kHeadBytesMax = 65536;
inline constexpr size_t kHeadersMax = 100;

struct HttpHead {
  HttpRequest request;  // without its body
  uint64_t length = 0;  // of the body, unless it is chunked
  bool chunked = false;
  bool keeps_alive = true;        // what the client asks for
  bool expects_continue = false;  // Expect: 100-continue
};

struct HeadResult {
  enum class State : uint8_t {
    kMore,  // the head is not complete
    kDone,
    kWrong,
  };
  State state = State::kMore;
  size_t bytes = 0;  // kDone: of the head
  HttpHead head = {};
  int status = 0;            // kWrong: 400, 413, 414, 417 or 431
  std::string message = {};  // kWrong: why, for people
};

// Reads a head at the beginning of `bytes`. A body of more than `body_max` bytes is refused with
// 413.
HeadResult ParseHead(std::string_view bytes, uint64_t body_max);

// The bytes that a percent-encoded text stands for; false where it is not encoded properly or has a
// NUL byte. In queries a plus sign is a space.
enum class PlusSign : uint8_t { kItself, kSpace };
bool PercentDecode(std::string_view text, PlusSign plus, std::string* out);

}  // namespace kvant::tools
