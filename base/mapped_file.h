// A read-only memory mapping of a whole regular file.
//
// Errors (kIo) name the path and the reason: missing, a directory, a device such as /dev/null, no
// permission. An empty file maps to an empty span.
// Thread-safety: const after Open; may be shared freely.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <vector>

#include "base/result.h"
#include "kvant/file_access.h"

namespace kvant {

// A part of a file, in bytes.
struct FilePart {
  size_t begin = 0;
  size_t size = 0;
};

// Mapped memory that is read soon: its pages may come from the disk together.
void WillRead(std::span<const std::byte> part);

class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // `scattered` parts are read a few bytes here and there: their pages are mapped whatever the
  // access, come from the disk one by one, and are never locked.
  static Result<MappedFile> Open(const std::string& path, FileAccess access = FileAccess::kMap,
                                 const ReadProgress& progress = {},
                                 const std::vector<FilePart>& scattered = {});

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Makes parts scattered from now on.
  void Scatter(const std::vector<FilePart>& parts);

  // Pins the pages in memory (mlock), but for scattered parts. kIo with the limit's name where the
  // system refuses.
  Status Lock() const;

  // The pages that lie wholly in this part of bytes() need not stay in this process's memory; they
  // come back when they are read. No effect for FileAccess::kRead, and on memory of others.
  void Release(std::span<const std::byte> part) const;

 private:
  // Maps the pages of scattered parts again where they were to be read.
  Status MapScattered(int file) const;
  // The parts between the scattered ones.
  std::vector<FilePart> Others() const;

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::vector<FilePart> scattered_;  // whole pages, in the order of the file
  FileAccess access_ = FileAccess::kMap;
  std::string path_;
};

}  // namespace kvant
