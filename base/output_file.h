// Writes a file so that it appears whole or not at all: the bytes go to a temporary file in the
// same folder, which takes the final name only at Commit. Without Commit the temporary is removed
// and an existing file of that name stays as it was. A path that is no regular file (a pipe,
// /dev/stdout) is written directly.
//
// Errors (kIo) name the path and the reason, a full disk included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvant {

class OutputFile {
 public:
  OutputFile() = default;
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  static Result<OutputFile> Create(const std::string& path);

  // Appends; small writes are buffered.
  Status Write(std::span<const std::byte> bytes);
  Status Write(const void* data, size_t size) {
    return Write({static_cast<const std::byte*>(data), size});
  }

  // Bytes written so far.
  uint64_t position() const { return position_; }

  // Flushes to the disk and gives the file its final name.
  Status Commit();

 private:
  Status Flush();
  void Discard();

  std::string path_;
  std::string temporary_path_;  // empty when writing directly
  int fd_ = -1;
  uint64_t position_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace kvant
