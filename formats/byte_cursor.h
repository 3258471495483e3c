// A position in the bytes of a file that never passes their end, for the parsers of binary files.
// Numbers are in the host's byte order and may be misaligned.
//
// Thread-safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace kvant::formats {

class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  // The next `size` bytes, or null where fewer remain.
  const std::byte* Take(uint64_t size) {
    if (size > remaining()) return nullptr;
    const std::byte* data = bytes_.data() + position_;
    position_ += size;
    return data;
  }

  // Copies the next number.
  template <class T>
  bool Read(T& number) {
    const std::byte* data = Take(sizeof(T));
    if (data == nullptr) return false;
    std::memcpy(&number, data, sizeof(T));
    return true;
  }

  // A length of the unsigned type Length and that many bytes.
  template <class Length>
  bool ReadString(std::string_view& text) {
    Length size = 0;
    if (!Read(size)) return false;
    const std::byte* data = Take(size);
    if (data == nullptr) return false;
    text = {reinterpret_cast<const char*>(data), size};
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

}  // namespace kvant::formats
