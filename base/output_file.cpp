// The temporary file lies in the same folder, because rename and link work only within one file
// system. Whole pieces are copied first, too: Linux cuts a write up whose bytes have yet to be read
// from a mapped file, and then takes smaller pages for it.
#include "base/output_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace kvant {
namespace {

// Names of temporaries: the name of the file, this, and six letters or digits.
constexpr std::string_view kMark = ".kvant-";
constexpr size_t kRandomLetters = 6;
constexpr int kNamesTried = 100;

struct SplitPath {
  std::string folder;  // "." where the path names none
  std::string start;   // of the names of temporaries, kMark included
};

SplitPath Split(const std::string& path) {
  const size_t slash = path.rfind('/');
  SplitPath split;
  split.folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  split.start = name.substr(0, NAME_MAX - kMark.size() - kRandomLetters);
  split.start += kMark;
  return split;
}

std::string PathIn(const SplitPath& split, std::string_view name) {
  return split.folder + (split.folder.ends_with('/') ? "" : "/") + std::string(name);
}

std::string RandomLetters() {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  unsigned char bytes[kRandomLetters] = {};
  if (getrandom(bytes, sizeof(bytes), 0) < 0) std::memset(bytes, 0, sizeof(bytes));
  std::string letters;
  for (const unsigned char byte : bytes) letters += kLetters[byte % kLetters.size()];
  return letters;
}

bool IsTemporaryName(std::string_view name, std::string_view start) {
  return name.starts_with(start) && name.size() == start.size() + kRandomLetters &&
         std::all_of(name.begin() + static_cast<ptrdiff_t>(start.size()), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0; });
}

// Whether the path names the file that is open as `fd`.
bool Names(const std::string& path, int fd) {
  struct stat named {};
  struct stat opened {};
  return lstat(path.c_str(), &named) == 0 && fstat(fd, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

// Removes a temporary unless the process that writes it still holds its lock.
void RemoveIfAbandoned(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  struct stat info {};
  const bool ours = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
  if (ours && flock(fd, LOCK_EX | LOCK_NB) == 0 && Names(path, fd)) unlink(path.c_str());
  close(fd);
}

void RemoveAbandoned(const SplitPath& split) {
  DIR* folder = opendir(split.folder.c_str());
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    if (IsTemporaryName(entry->d_name, split.start)) {
      RemoveIfAbandoned(PathIn(split, entry->d_name));
    }
  }
  closedir(folder);
}

// The name by which an open file can be linked.
std::string DescriptorPath(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

int OpenUnnamed(const SplitPath& split) {
  const int fd = open(split.folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd < 0 || access(DescriptorPath(fd).c_str(), F_OK) == 0) return fd;
  close(fd);  // no /proc: it could never get a name
  return -1;
}

// Creates and locks a temporary with a name.
int OpenNamed(const SplitPath& split, std::string& path) {
  for (int i = 0; i < kNamesTried; ++i) {
    path = PathIn(split, split.start + RandomLetters());
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) return -1;
    if (fd < 0) continue;
    // Another process may have taken it for abandoned before it was locked. Where nothing can be
    // locked, nobody takes anything for abandoned.
    const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (locked && Names(path, fd)) return fd;
    close(fd);
  }
  errno = EEXIST;
  return -1;
}

}  // namespace

// The pieces of a reserved file of which a part is there.
struct OutputFile::OpenPieces {
  struct Piece {
    std::unique_ptr<std::byte[]> bytes;
    size_t written = 0;
  };
  uint64_t file_bytes;
  std::mutex mutex = {};  // of what follows, but for the bytes of pieces
  std::map<uint64_t, Piece> by_position = {};
};

OutputFile::OutputFile() = default;

OutputFile::~OutputFile() { Discard(); }

OutputFile::OutputFile(OutputFile&& other) noexcept { *this = std::move(other); }

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(place_, other.place_);
  std::swap(temporary_path_, other.temporary_path_);
  std::swap(fd_, other.fd_);
  std::swap(position_, other.position_);
  std::swap(buffer_, other.buffer_);
  std::swap(open_pieces_, other.open_pieces_);
  return *this;
}

Result<OutputFile> OutputFile::Create(const std::string& path, Temporary temporary) {
  OutputFile file;
  file.path_ = path;
  struct stat info {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return MakeError(ErrorCode::kIo, "{}: is a directory", path);
  const bool nameless = exists && info.st_nlink == 0;  // as a memfd under /proc/self/fd
  if (exists && (!S_ISREG(info.st_mode) || nameless)) {
    file.fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.fd_ < 0) return file.CreateError();
  } else {
    KVANT_TRY(file.OpenTemporary(temporary));
    if (exists) fchmod(file.fd_, info.st_mode & 07777);
  }
  file.buffer_.reserve(kPieceBytes);
  return file;
}

Status OutputFile::OpenTemporary(Temporary temporary) {
  const SplitPath split = Split(path_);
  RemoveAbandoned(split);
  if (temporary == Temporary::kUnnamedIfPossible) {
    fd_ = OpenUnnamed(split);
    place_ = Place::kUnnamed;
  }
  if (fd_ < 0) {
    fd_ = OpenNamed(split, temporary_path_);
    place_ = Place::kNamed;
  }
  if (fd_ >= 0) return {};
  place_ = Place::kFinal;
  temporary_path_.clear();
  return CreateError();
}

Status OutputFile::Write(std::span<const std::byte> bytes) {
  KVANT_CHECK(fd_ >= 0 && open_pieces_ == nullptr);
  position_ += bytes.size();
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kPieceBytes - buffer_.size()));
    buffer_.insert(buffer_.end(), part.begin(), part.end());
    if (buffer_.size() == kPieceBytes) KVANT_TRY(Flush());
    bytes = bytes.subspan(part.size());
  }
  return {};
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
  KVANT_CHECK(fd_ >= 0 && size >= position_ && open_pieces_ == nullptr);
  struct stat info {};
  if (fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    return MakeError(ErrorCode::kInvalid, "{}: expected a regular file, found another kind", path_);
  }
  // Some file systems cannot allocate ahead; there the size alone is set.
  if (fallocate(fd_, 0, 0, static_cast<off_t>(size)) != 0) {
    if (errno != EOPNOTSUPP && errno != EINVAL) return WriteError();
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0) return WriteError();
  }
  open_pieces_.reset(new OpenPieces{.file_bytes = size});
  KVANT_TRY(WriteAt(position_ - buffer_.size(), buffer_));
  buffer_ = std::vector<std::byte>();
  return {};
}

Status OutputFile::WriteAt(uint64_t position, std::span<const std::byte> bytes) const {
  KVANT_CHECK(open_pieces_ != nullptr && position + bytes.size() <= open_pieces_->file_bytes);
  while (!bytes.empty()) {
    const size_t offset = position % kPieceBytes;
    const size_t count = std::min(bytes.size(), kPieceBytes - offset);
    KVANT_TRY(WriteInPiece(position - offset, offset, bytes.first(count)));
    bytes = bytes.subspan(count);
    position += count;
  }
  return {};
}

// Bytes are copied without the lock; who adds the last ones takes the piece out and writes it.
Status OutputFile::WriteInPiece(uint64_t begin, size_t offset,
                                std::span<const std::byte> bytes) const {
  const auto piece_bytes =
      static_cast<size_t>(std::min<uint64_t>(kPieceBytes, open_pieces_->file_bytes - begin));
  std::unique_lock lock(open_pieces_->mutex);
  OpenPieces::Piece& piece = open_pieces_->by_position[begin];
  if (piece.bytes == nullptr) {
    piece.bytes = std::make_unique_for_overwrite<std::byte[]>(piece_bytes);
  }
  lock.unlock();
  std::memcpy(piece.bytes.get() + offset, bytes.data(), bytes.size());
  lock.lock();
  piece.written += bytes.size();
  if (piece.written < piece_bytes) return {};
  const auto complete = open_pieces_->by_position.extract(begin);
  lock.unlock();
  return WriteAllAt(begin, {complete.mapped().bytes.get(), piece_bytes});
}

Status OutputFile::WriteAllAt(uint64_t position, std::span<const std::byte> bytes) const {
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

Error OutputFile::CreateError() const {
  return MakeError(ErrorCode::kIo, "{}: cannot create: {}", path_, std::strerror(errno));
}

Status OutputFile::Commit() {
  KVANT_CHECK(fd_ >= 0);
  KVANT_CHECK(open_pieces_ == nullptr || open_pieces_->by_position.empty());
  KVANT_TRY(Flush());
  if (place_ != Place::kFinal) {
    if (fsync(fd_) != 0) return WriteError();
    KVANT_TRY(MoveIntoPlace());
  }
  return close(std::exchange(fd_, -1)) == 0 ? Status() : WriteError();
}

Status OutputFile::MoveIntoPlace() {
  if (place_ == Place::kUnnamed) KVANT_TRY(LinkUnnamed());
  if (place_ == Place::kNamed) {
    if (rename(temporary_path_.c_str(), path_.c_str()) != 0) return NameError();
    temporary_path_.clear();
    place_ = Place::kFinal;
  }
  return {};
}

// Gives the unnamed file the final name, or a temporary one where the final name is taken, since
// only rename can replace a file. It stays open, and so locked, until it has the final name.
Status OutputFile::LinkUnnamed() {
  const std::string source = DescriptorPath(fd_);
  const auto link_as = [&](const std::string& name) {
    return linkat(AT_FDCWD, source.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  if (link_as(path_)) {
    place_ = Place::kFinal;
    return {};
  }
  if (errno != EEXIST) return NameError();
  flock(fd_, LOCK_EX | LOCK_NB);
  const SplitPath split = Split(path_);
  for (int i = 0; i < kNamesTried; ++i) {
    const std::string name = PathIn(split, split.start + RandomLetters());
    if (link_as(name)) {
      temporary_path_ = name;
      place_ = Place::kNamed;
      return {};
    }
    if (errno != EEXIST) break;
  }
  return NameError();
}

Error OutputFile::NameError() const {
  return MakeError(ErrorCode::kIo, "{}: cannot give the file its name: {}", path_,
                   std::strerror(errno));
}

void OutputFile::Discard() {
  if (!temporary_path_.empty()) unlink(temporary_path_.c_str());
  temporary_path_.clear();
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace kvant
