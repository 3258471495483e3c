// A temporary file in the same folder, renamed at Commit: rename is atomic only within one file
// system. Small writes collect in a buffer of 1 MiB; larger ones go to the descriptor directly.
#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace kvant {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

}  // namespace

OutputFile::~OutputFile() { Discard(); }

OutputFile::OutputFile(OutputFile&& other) noexcept { *this = std::move(other); }

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_path_, other.temporary_path_);
  std::swap(fd_, other.fd_);
  std::swap(position_, other.position_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

Result<OutputFile> OutputFile::Create(const std::string& path) {
  OutputFile file;
  file.path_ = path;
  struct stat info {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return MakeError(ErrorCode::kIo, "{}: is a directory", path);
  const bool nameless = exists && info.st_nlink == 0;  // as a memfd under /proc/self/fd
  if (exists && (!S_ISREG(info.st_mode) || nameless)) {
    file.fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    file.temporary_path_ = path + ".XXXXXX";
    file.fd_ = mkostemp(file.temporary_path_.data(), O_CLOEXEC);
  }
  if (file.fd_ < 0) {
    file.temporary_path_.clear();
    return MakeError(ErrorCode::kIo, "{}: cannot create: {}", path, std::strerror(errno));
  }
  if (!file.temporary_path_.empty()) {
    const mode_t mask = umask(0);
    umask(mask);
    fchmod(file.fd_, exists ? (info.st_mode & 07777) : (0666 & ~mask));
  }
  file.buffer_.reserve(kBufferBytes);
  return file;
}

Status OutputFile::Write(std::span<const std::byte> bytes) {
  KVANT_CHECK(fd_ >= 0);
  position_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) KVANT_TRY(Flush());
  if (bytes.size() < kBufferBytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return {};
  }
  return WriteAll(bytes);
}

Status OutputFile::Flush() {
  KVANT_TRY(WriteAll(buffer_));
  buffer_.clear();
  return {};
}

Status OutputFile::WriteAll(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return WriteError();
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

Status OutputFile::Reserve(uint64_t size) {
  KVANT_CHECK(fd_ >= 0 && size >= position_);
  struct stat info {};
  if (fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    return MakeError(ErrorCode::kInvalid, "{}: expected a regular file, found another kind", path_);
  }
  KVANT_TRY(Flush());
  // Some file systems cannot allocate ahead; there the size alone is set.
  if (fallocate(fd_, 0, 0, static_cast<off_t>(size)) == 0) return {};
  if (errno != EOPNOTSUPP && errno != EINVAL) return WriteError();
  return ftruncate(fd_, static_cast<off_t>(size)) == 0 ? Status() : WriteError();
}

Status OutputFile::WriteAt(uint64_t position, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(position));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return WriteError();
    bytes = bytes.subspan(static_cast<size_t>(count));
    position += static_cast<uint64_t>(count);
  }
  return {};
}

Status OutputFile::WriteError() const {
  return MakeError(ErrorCode::kIo, "{}: cannot write: {}", path_, std::strerror(errno));
}

Status OutputFile::Commit() {
  KVANT_CHECK(fd_ >= 0);
  KVANT_TRY(Flush());
  const bool temporary = !temporary_path_.empty();
  if (temporary && fsync(fd_) != 0) return WriteError();
  if (close(std::exchange(fd_, -1)) != 0) return WriteError();
  if (temporary && rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return MakeError(ErrorCode::kIo, "{}: cannot rename into place: {}", path_,
                     std::strerror(errno));
  }
  temporary_path_.clear();
  return {};
}

void OutputFile::Discard() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  if (!temporary_path_.empty()) unlink(temporary_path_.c_str());
  temporary_path_.clear();
}

}  // namespace kvant
