// Anonymous mappings: page-aligned, zero, and reserved as address space only (MAP_NORESERVE), with
// huge pages asked for from 2 MiB on, because decoding is bound by memory and TLB misses.
#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/result.h"

namespace kvant {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Result<AlignedBuffer> AlignedBuffer::Allocate(size_t bytes, const char* what) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  const size_t size = RoundUp(bytes, kPageBytes);
  if (size < bytes) {
    return MakeError(ErrorCode::kOutOfMemory, "{}: {} bytes exceed the address space", what, bytes);
  }
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return MakeError(ErrorCode::kOutOfMemory, "{}: cannot reserve {} bytes: {}", what, size,
                     std::strerror(errno));
  }
  if (size >= kHugePageBytes) madvise(address, size, MADV_HUGEPAGE);
  buffer.data_ = static_cast<std::byte*>(address);
  buffer.size_ = size;
  return buffer;
}

void AlignedBuffer::Commit() {
  for (size_t offset = 0; offset < size_; offset += kPageBytes) {
    volatile std::byte* page = data_ + offset;
    *page = *page;
  }
}

}  // namespace kvant
