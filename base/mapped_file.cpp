// mmap of the whole file, or a private copy in anonymous memory where the caller asks for one. What
// is not a regular file is refused before it is read, so that a pipe or a device cannot hang us.
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "base/interrupt.h"
#include "base/result.h"
#include "kvant/lost_mapping.h"

namespace kvant {
namespace {

// The files that are mapped now, as a list that a signal handler can read: entries are never freed,
// only used again, and `begin` is set last and cleared first.
struct Mapping {
  std::atomic<bool> taken{true};
  std::atomic<uintptr_t> begin{0};  // 0: not in use
  std::atomic<uintptr_t> end{0};
  std::atomic<char*> path{nullptr};
  Mapping* next = nullptr;
};

std::atomic<Mapping*> mappings{nullptr};

static_assert(std::atomic<uintptr_t>::is_always_lock_free, "read in a signal handler");

Mapping* TakeMapping() {
  for (Mapping* entry = mappings.load(); entry != nullptr; entry = entry->next) {
    if (!entry->taken.exchange(true)) return entry;
  }
  auto* entry = new Mapping;
  entry->next = mappings.load();
  while (!mappings.compare_exchange_weak(entry->next, entry)) {
  }
  return entry;
}

void Remember(const std::byte* data, size_t size, const std::string& path) {
  Mapping* entry = TakeMapping();
  const auto begin = reinterpret_cast<uintptr_t>(data);
  entry->path.store(strdup(path.c_str()));
  entry->end.store(begin + size);
  entry->begin.store(begin);
}

void Forget(const std::byte* data) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  for (Mapping* entry = mappings.load(); entry != nullptr; entry = entry->next) {
    if (entry->begin.load() != begin) continue;
    entry->begin.store(0);
    std::free(entry->path.exchange(nullptr));
    entry->taken.store(false);
    return;
  }
}

// Closes a descriptor at the end of a scope.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

// Bytes that are read between two calls of the caller's ReadProgress.
constexpr size_t kToldBytes = size_t{64} << 20;

Status Tell(const ReadProgress& progress, size_t done, size_t size, const std::string& path) {
  if ((!progress || progress(done, size)) && !IsInterrupted()) return {};
  return MakeError(ErrorCode::kCancelled, "{}: cancelled", path);
}

Status ReadPart(int fd, std::byte* data, size_t size, const FilePart& part, const std::string& path,
                const ReadProgress& progress) {
  const size_t end = part.begin + part.size;
  size_t done = part.begin;
  size_t told = done;
  while (done < end) {
    const size_t piece = std::min(end - done, kToldBytes);
    const ssize_t count = pread(fd, data + done, piece, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return MakeError(ErrorCode::kIo, "{}: cannot read: {}", path, std::strerror(errno));
    if (count == 0)
      return MakeError(ErrorCode::kIo, "{}: ended at byte {} of {}", path, done, size);
    done += static_cast<size_t>(count);
    if (done - told < kToldBytes || done == size) continue;
    KVANT_TRY(Tell(progress, done, size, path));
    told = done;
  }
  return {};
}

size_t MappedPageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// The whole pages of parts of a file of `size` bytes.
std::vector<FilePart> WholePages(const std::vector<FilePart>& parts, size_t size) {
  const size_t page = MappedPageBytes();
  std::vector<FilePart> whole;
  for (const FilePart& part : parts) {
    const size_t begin = (part.begin + page - 1) / page * page;
    const size_t end = std::min(part.begin + part.size, size) / page * page;
    if (begin < end) whole.push_back({begin, end - begin});
  }
  std::ranges::sort(whole, {}, &FilePart::begin);
  return whole;
}

}  // namespace

const char* MappedFileAt(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Mapping* entry = mappings.load(); entry != nullptr; entry = entry->next) {
    const uintptr_t begin = entry->begin.load();
    if (begin != 0 && at >= begin && at < entry->end.load()) return entry->path.load();
  }
  return nullptr;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  Forget(data_);
  munmap(data_, size_);
}

void WillRead(std::span<const std::byte> part) {
  const auto begin =
      reinterpret_cast<uintptr_t>(part.data()) / MappedPageBytes() * MappedPageBytes();
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size());
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      scattered_(std::move(other.scattered_)),
      access_(other.access_),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(scattered_, other.scattered_);
  std::swap(access_, other.access_);
  std::swap(path_, other.path_);
  return *this;
}

Status MappedFile::MapScattered(int file) const {
  for (const FilePart& part : scattered_) {
    const void* mapped = mmap(data_ + part.begin, part.size, PROT_READ, MAP_SHARED | MAP_FIXED,
                              file, static_cast<off_t>(part.begin));
    if (mapped != MAP_FAILED) continue;
    return MakeError(ErrorCode::kIo, "{}: cannot map {} bytes: {}", path_, part.size,
                     std::strerror(errno));
  }
  return {};
}

void MappedFile::Scatter(const std::vector<FilePart>& parts) {
  scattered_ = WholePages(parts, size_);
  for (const FilePart& part : scattered_) {
    madvise(data_ + part.begin, part.size, MADV_NOHUGEPAGE);
    madvise(data_ + part.begin, part.size, MADV_RANDOM);
  }
}

std::vector<FilePart> MappedFile::Others() const {
  std::vector<FilePart> others;
  size_t begin = 0;
  for (const FilePart& part : scattered_) {
    if (begin < part.begin) others.push_back({begin, part.begin - begin});
    begin = part.begin + part.size;
  }
  if (begin < size_) others.push_back({begin, size_ - begin});
  return others;
}

Result<MappedFile> MappedFile::Open(const std::string& path, FileAccess access,
                                    const ReadProgress& progress,
                                    const std::vector<FilePart>& scattered) {
  // O_NONBLOCK: opening a pipe must not hang before we can refuse it.
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return MakeError(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
  struct stat info {};
  if (fstat(file.fd, &info) != 0) {
    return MakeError(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
  }
  if (S_ISDIR(info.st_mode)) return MakeError(ErrorCode::kIo, "{}: is a directory", path);
  if (!S_ISREG(info.st_mode)) return MakeError(ErrorCode::kIo, "{}: not a regular file", path);

  MappedFile mapped;
  mapped.path_ = path;
  mapped.access_ = access;
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) return mapped;
  const bool copy = access == FileAccess::kRead;
  // Pages of scattered parts are not to be counted as memory.
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (scattered.empty() ? 0 : MAP_NORESERVE);
  void* address = copy ? mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0)
                       : mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (address == MAP_FAILED) {
    return MakeError(ErrorCode::kIo, "{}: cannot map {} bytes: {}", path, size,
                     std::strerror(errno));
  }
  mapped.data_ = static_cast<std::byte*>(address);
  mapped.size_ = size;
  mapped.scattered_ = WholePages(scattered, size);
  if (copy) {
    madvise(address, size, MADV_HUGEPAGE);
    for (const FilePart& part : mapped.Others()) {
      KVANT_TRY(ReadPart(file.fd, mapped.data_, size, part, path, progress));
    }
    KVANT_TRY(mapped.MapScattered(file.fd));
    if (!mapped.scattered_.empty()) Remember(mapped.data_, size, path);
  } else {
    // Data that is read from the disk from now on comes in pages of 2 MiB, where the file system
    // can do that: this is faster, and later reads of the weights miss the page tables less often.
    madvise(address, size, MADV_HUGEPAGE);
    Remember(mapped.data_, size, path);
  }
  mapped.Scatter(scattered);
  KVANT_TRY(Tell(progress, size, size, path));
  return mapped;
}

Status MappedFile::Lock() const {
  for (const FilePart& part : Others()) {
    if (mlock(data_ + part.begin, part.size) == 0) continue;
    return MakeError(ErrorCode::kIo, "{}: cannot lock {} bytes in memory: {} (see ulimit -l)",
                     path_, part.size, std::strerror(errno));
  }
  return {};
}

void MappedFile::Release(std::span<const std::byte> part) const {
  const bool is_inside = std::greater_equal<>()(part.data(), data_) &&
                         std::less_equal<>()(part.data() + part.size(), data_ + size_);
  if (access_ == FileAccess::kRead || part.empty() || !is_inside) return;
  const size_t page = MappedPageBytes();
  const auto offset = static_cast<size_t>(part.data() - data_);
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + part.size()) / page * page;
  if (begin < end) madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace kvant
