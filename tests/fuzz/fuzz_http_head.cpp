// Fuzzes the reader of HTTP heads and of chunked bodies: whatever comes, it is refused or read in
// one way, however it is cut into pieces.
//
// The first byte says how long the pieces are; the rest is what a client sends.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/serve/http/chunked_body.h"
#include "tools/serve/http/http_head.h"

namespace {

using kvant::tools::ChunkedBody;
using kvant::tools::HeadResult;

constexpr uint64_t kBodyMax = 4096;

struct Outcome {
  HeadResult::State head = HeadResult::State::kMore;
  ChunkedBody::State body = ChunkedBody::State::kMore;
  size_t taken = 0;
  std::string content;
  bool operator==(const Outcome&) const = default;
};

Outcome Read(std::string_view bytes, size_t piece) {
  Outcome out;
  std::string in;
  size_t given = 0;
  HeadResult head;
  while (given < bytes.size() && head.state == HeadResult::State::kMore) {
    in += bytes.substr(given, piece);
    given += std::min(piece, bytes.size() - given);
    head = kvant::tools::ParseHead(in, kBodyMax);
  }
  out.head = head.state;
  if (head.state == HeadResult::State::kWrong && (head.status < 400 || head.message.empty())) {
    __builtin_trap();
  }
  if (head.state != HeadResult::State::kDone) return out;
  if (head.bytes > in.size() || head.head.request.path.empty()) __builtin_trap();
  if (head.head.chunked && head.head.length != 0) __builtin_trap();
  out.taken = head.bytes;
  if (!head.head.chunked) return out;
  ChunkedBody body(kBodyMax);
  std::string_view rest = bytes.substr(head.bytes);
  while (!rest.empty() && out.body == ChunkedBody::State::kMore) {
    size_t taken = 0;
    const std::string_view next = rest.substr(0, piece);
    out.body = body.Push(next, out.content, &taken);
    if (taken > next.size()) __builtin_trap();
    if (out.body == ChunkedBody::State::kMore && taken != next.size()) __builtin_trap();
    out.taken += taken;
    rest.remove_prefix(taken);
  }
  if (out.content.size() > kBodyMax) __builtin_trap();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 4000) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Read(bytes, bytes.size());
  const Outcome cut = Read(bytes, size_t{1} + data[0] % 64);
  // A wrong line may be found before the head is complete, and after it is, too.
  if (whole.head == HeadResult::State::kDone && !(whole == cut)) __builtin_trap();
  if (whole.head == HeadResult::State::kWrong && cut.head == HeadResult::State::kDone) {
    __builtin_trap();
  }
  return 0;
}
