// The kinds of files that newcomers take for a model, told by their first bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace kvant::formats {

// The end of a message that the file is not of the expected format; "" where nothing is known.
inline std::string_view OtherFileHint(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("version https://git-lfs")) {
    return "; it is a pointer of Git LFS, and 'git lfs pull' fetches the file itself";
  }
  if (text.starts_with("<!DOCTYPE") || text.starts_with("<!doctype") || text.starts_with("<html")) {
    return "; it is a web page, so the download went wrong";
  }
  if (text.starts_with("PK\x03\x04")) {
    return "; it is a zip archive, as PyTorch's weights are";
  }
  constexpr size_t kLengthBytes = 8;  // of a safetensors file's header, which is JSON
  if (text.size() > kLengthBytes && text.substr(kLengthBytes).starts_with("{\"")) {
    return "; it is a safetensors file, and 'kvant convert' makes a GGUF file of its folder";
  }
  return "";
}

}  // namespace kvant::formats
