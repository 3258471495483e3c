// A zero-initialised, page-aligned block of anonymous memory that is returned to the system when it
// goes out of scope. Large blocks ask for huge pages. Pages are committed at first touch, so a
// buffer reserved for the worst case costs only what is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace kvant {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  // Reserves `bytes` (0 gives an empty buffer). `what` names the use in an OUT_OF_MEMORY message.
  static Result<AlignedBuffer> Allocate(size_t bytes, const char* what);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }

  // Touches every page now (preallocated memory instead of memory on demand).
  void Commit();

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Rounds up to a multiple of a power of two.
constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace kvant
