// Takes the chunks of a body apart (Transfer-Encoding: chunked of RFC 9112).
//
// A chunk's size is 1 to 8 hexadecimal digits directly before CR LF. Extensions of chunks and
// fields behind the last one are refused: nobody needs them, and programs read them differently.
//
// Thread-safety: one thread at a time per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvant::tools {

class ChunkedBody {
 public:
  enum class State : uint8_t {
    kMore,
    kDone,
    kWrong,     // these are no chunks
    kTooLarge,  // the body has more than `bytes_max` bytes
  };
  explicit ChunkedBody(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Takes bytes as far as they belong to the body and appends their content to `body`. `taken` is
  // how many that are.
  State Push(std::string_view bytes, std::string& body, size_t* taken);

 private:
  enum class Part : uint8_t { kSize, kSizeEnd, kData, kDataEnd, kLastEnd };

  State TakeLineEnd(char c, Part next);
  State TakeSize(char c, uint64_t body_bytes);

  uint64_t bytes_max_;
  Part part_ = Part::kSize;
  uint64_t left_ = 0;  // bytes of the chunk
  int digits_ = 0;     // of its size
  bool last_ = false;
  bool in_line_end_ = false;  // after CR
};

}  // namespace kvant::tools
