#include "tools/serve/slot_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/result.h"

namespace kvant::tools {
namespace {

constexpr size_t kNameBytesMax = 64;

Status CheckSlotName(const std::string& name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  const bool is_name = !name.empty() && name.size() <= kNameBytesMax &&
                       std::ranges::all_of(name, is_plain) &&
                       name.find_first_not_of('.') != name.npos;
  if (is_name) return {};
  return MakeError(ErrorCode::kInvalid, "expected a name of 1 to {} of A-Z a-z 0-9 . _ -",
                   kNameBytesMax);
}

Error NoRegularFile(const std::string& name) {
  return MakeError(ErrorCode::kInvalid, "{}: expected a regular file, found another kind", name);
}

std::string PathOfDescriptor(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

}  // namespace

Result<SlotFolder> SlotFolder::Open(const std::string& path) {
  SlotFolder folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.fd_ < 0 || faccessat(folder.fd_, ".", R_OK | W_OK | X_OK, 0) != 0) {
    return MakeError(ErrorCode::kIo, "--slot-save-path: cannot use the folder '{}': {}", path,
                     std::strerror(errno));
  }
  return folder;
}

SlotFolder::~SlotFolder() {
  if (fd_ >= 0) close(fd_);
}

SlotFolder::File::~File() {
  if (fd_ >= 0) close(fd_);
}

std::string SlotFolder::File::path() const { return PathOfDescriptor(fd_); }

uint64_t SlotFolder::File::bytes() const {
  struct stat info = {};
  return fstat(fd_, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

Result<SlotFolder::File> SlotFolder::OpenToRead(const std::string& name) const {
  KVANT_TRY(CheckSlotName(name));
  // O_NONBLOCK: opening a pipe must not hang before it can be refused.
  File file(openat(fd_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info = {};
  if (fstatat(fd_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return MakeError(ErrorCode::kIo, "{}: {}", name, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return NoRegularFile(name);
  if (access(file.path().c_str(), R_OK) != 0) {
    return MakeError(ErrorCode::kIo, "{}: cannot read", name);
  }
  struct stat opened = {};
  if (stat(file.path().c_str(), &opened) != 0 || !S_ISREG(opened.st_mode)) {
    return NoRegularFile(name);
  }
  return file;
}

Result<std::string> SlotFolder::PathToWrite(const std::string& name) const {
  KVANT_TRY(CheckSlotName(name));
  struct stat info = {};
  const bool exists = fstatat(fd_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  if (exists && !S_ISREG(info.st_mode)) return NoRegularFile(name);
  if (!exists && errno != ENOENT) {
    return MakeError(ErrorCode::kIo, "{}: {}", name, std::strerror(errno));
  }
  return fmt::format("{}/{}", PathOfDescriptor(fd_), name);
}

}  // namespace kvant::tools
