// A read-only memory mapping of a whole regular file.
//
// Errors (kIo) name the path and the reason: missing, a directory, a device such as /dev/null, no
// permission. An empty file maps to an empty span.
// Thread-safety: const after Open; may be shared freely.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"
#include "kvant/file_access.h"

namespace kvant {

class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  static Result<MappedFile> Open(const std::string& path, FileAccess access = FileAccess::kMap,
                                 const ReadProgress& progress = {});

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Pins the pages in memory (mlock). kIo with the limit's name where the system refuses.
  Status Lock() const;

  // The pages that lie wholly in this part of bytes() need not stay in this process's memory; they
  // come back when they are read. No effect for FileAccess::kRead, and on memory of others.
  void Release(std::span<const std::byte> part) const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  FileAccess access_ = FileAccess::kMap;
  std::string path_;
};

}  // namespace kvant
