// The folder of saved slots: files that requests name. A name has letters, digits, dots, lines and
// underscores only, so that it leads nowhere else, and is a regular file in the folder or none yet:
// no link is followed. The folder is opened once and kept, so that its own path cannot be turned
// into another one later.
//
// Thread-safety: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"

namespace kvant::tools {

class SlotFolder {
 public:
  // kIo for what is no folder, or cannot be written to.
  static Result<SlotFolder> Open(const std::string& path);
  ~SlotFolder();
  SlotFolder(SlotFolder&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  SlotFolder& operator=(SlotFolder&&) = delete;

  // A file that is open for reading; the descriptor is closed with it.
  class File {
   public:
    explicit File(int fd) : fd_(fd) {}
    ~File();
    File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    File& operator=(File&&) = delete;
    std::string path() const;  // by which this process reads it, whatever its name is now
    uint64_t bytes() const;

   private:
    int fd_;
  };

  // kInvalid for a name of another form, and for a name of what is no regular file; kIo where there
  // is none.
  Result<File> OpenToRead(const std::string& name) const;
  // The path by which this process writes a file of that name: kvant::OutputFile then replaces one
  // that is there. kInvalid as above.
  Result<std::string> PathToWrite(const std::string& name) const;

 private:
  explicit SlotFolder(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace kvant::tools
