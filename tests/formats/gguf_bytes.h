// GGUF files made byte by byte, so that tests can write what no proper writer would. Independent of
// the library's own writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"

namespace kvant::test {

class Bytes {
 public:
  template <class T>
  Bytes& Number(T value) {
    return Raw(&value, sizeof(value));
  }
  Bytes& U32(uint32_t value) { return Number(value); }
  Bytes& U64(uint64_t value) { return Number(value); }
  Bytes& Type(formats::GgufType type) { return Number(type); }
  Bytes& String(std::string_view text) { return U64(text.size()).Raw(text.data(), text.size()); }
  Bytes& Raw(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
    return *this;
  }
  Bytes& Append(const Bytes& other) { return Raw(other.bytes_.data(), other.bytes_.size()); }
  Bytes& Fill(size_t count, uint8_t value = 0) {
    bytes_.append(count, static_cast<char>(value));
    return *this;
  }
  Bytes& PadTo(size_t multiple) {
    while (bytes_.size() % multiple != 0) Fill(1);
    return *this;
  }

  size_t size() const { return bytes_.size(); }
  std::span<const std::byte> span() const { return std::as_bytes(std::span(bytes_)); }

 private:
  std::string bytes_;
};

inline Bytes Header(uint64_t tensors, uint64_t metadata, uint32_t version = 3) {
  return Bytes().Raw("GGUF", 4).U32(version).U64(tensors).U64(metadata);
}

// A metadata entry whose value follows.
inline Bytes Key(std::string_view key, formats::GgufType type) {
  return Bytes().String(key).Type(type);
}

inline Bytes U32Entry(std::string_view key, uint32_t value) {
  return Key(key, formats::GgufType::kUint32).U32(value);
}

// An array entry whose elements follow.
inline Bytes ArrayEntry(std::string_view key, formats::GgufType element, uint64_t count) {
  return Key(key, formats::GgufType::kArray).Type(element).U64(count);
}

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ40 = 2;

inline Bytes TensorInfo(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type,
                        uint64_t offset) {
  Bytes info = Bytes().String(name).U32(static_cast<uint32_t>(dims.size()));
  for (const uint64_t size : dims) info.U64(size);
  return info.U32(type).U64(offset);
}

// A file of the given metadata entries and tensor infos, with data_bytes bytes of tensor data.
inline Bytes File(const std::vector<Bytes>& metadata, const std::vector<Bytes>& tensors,
                  size_t data_bytes, size_t alignment = 32) {
  Bytes file = Header(tensors.size(), metadata.size());
  for (const Bytes& entry : metadata) file.Append(entry);
  for (const Bytes& info : tensors) file.Append(info);
  file.PadTo(alignment);
  for (size_t i = 0; i < data_bytes; ++i) file.Fill(1, static_cast<uint8_t>(i));
  return file;
}

}  // namespace kvant::test
