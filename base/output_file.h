// Writes a file so that it appears whole or not at all: the bytes go to a temporary file in the
// same folder, which takes the final name only at Commit. Without Commit the temporary is removed
// and an existing file of that name stays as it was. A path that is no regular file (a pipe,
// /dev/stdout), or one that has no name in any folder (a memfd), is written directly.
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

  // Gives the file its full size at once, so that a full disk shows before the work, and lets
  // WriteAt fill what lies behind the bytes written so far. kInvalid where the path is no regular
  // file.
  Status Reserve(uint64_t size);

  // Writes inside a reserved file. Thread-safe.
  Status WriteAt(uint64_t position, std::span<const std::byte> bytes) const;

  // Flushes to the disk and gives the file its final name.
  Status Commit();

 private:
  Status Flush();
  Status WriteAll(std::span<const std::byte> bytes) const;
  Status WriteError() const;  // by errno
  void Discard();

  std::string path_;
  std::string temporary_path_;  // empty when writing directly
  int fd_ = -1;
  uint64_t position_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace kvant
