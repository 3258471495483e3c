// Writes a file so that it appears whole or not at all: the bytes go to a temporary file in the
// same folder, which takes the final name only at Commit. Without Commit the temporary goes away
// and an existing file of that name stays as it was. A path that is no regular file (a pipe,
// /dev/stdout), or one that has no name in any folder (a memfd), is written directly.
//
// The temporary has no name where the file system allows it, so that not even a process that is
// killed leaves something behind. Elsewhere, and for the moment in which an existing file is
// replaced, it is called PATH.kvant-XXXXXX and locked; Create removes such files for the same path
// whose process is gone.
//
// Whatever sizes are written, the system gets pieces of kPieceBytes that begin at multiples of it,
// the last one shorter. A file system that can then keeps the file in pages of 2 MiB, from which a
// mapped model is read faster than from small ones. A write that fails may thus show at a later
// call than the one that gave the bytes.
//
// Errors (kIo) name the path and the reason, a full disk included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvant {

class OutputFile {
 public:
  static constexpr size_t kPieceBytes = size_t{4} << 20;

  OutputFile();
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // File systems without unnamed files get kNamed; tests ask for it.
  enum class Temporary : uint8_t { kUnnamedIfPossible, kNamed };
  static Result<OutputFile> Create(const std::string& path,
                                   Temporary temporary = Temporary::kUnnamedIfPossible);

  // Appends, until Reserve.
  Status Write(std::span<const std::byte> bytes);
  Status Write(const void* data, size_t size) {
    return Write({static_cast<const std::byte*>(data), size});
  }

  // Bytes written so far.
  uint64_t position() const { return position_; }

  // Gives the file its full size at once, so that a full disk shows before the work, and lets
  // WriteAt fill bytes behind those written so far. kInvalid where the path is no regular file.
  Status Reserve(uint64_t size);

  // Writes inside a reserved file; by Commit every byte of it has to be written, and once only.
  // Memory holds each piece that is begun and not complete: of N threads that take ranges in the
  // file's order, at most 2 N + 1. Thread-safe.
  Status WriteAt(uint64_t position, std::span<const std::byte> bytes) const;

  // Flushes to the disk and gives the file its final name.
  Status Commit();

 private:
  Status OpenTemporary(Temporary temporary);
  Status MoveIntoPlace();
  Status LinkUnnamed();
  Status Flush();
  Status WriteAll(std::span<const std::byte> bytes) const;
  Status WriteInPiece(uint64_t begin, size_t offset, std::span<const std::byte> bytes) const;
  Status WriteAllAt(uint64_t position, std::span<const std::byte> bytes) const;
  Error CreateError() const;  // by errno
  Error NameError() const;    // by errno
  Status WriteError() const;  // by errno
  void Discard();

  std::string path_;
  // Where the bytes go until Commit.
  enum class Place : uint8_t { kFinal, kNamed, kUnnamed };
  Place place_ = Place::kFinal;
  std::string temporary_path_;  // while the temporary has a name
  int fd_ = -1;
  uint64_t position_ = 0;
  std::vector<std::byte> buffer_;  // the piece that Write has begun
  struct OpenPieces;
  std::unique_ptr<OpenPieces> open_pieces_;  // since Reserve
};

}  // namespace kvant
