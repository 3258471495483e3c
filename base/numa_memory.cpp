// move_pages and mbind, which the C library has no functions for.
#include "base/numa_memory.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/aligned_buffer.h"

namespace kvant {
namespace {

// Pages that one call moves.
constexpr size_t kBatch = 512;
// Nodes that a mask has room for; Linux has 1024 at most.
constexpr int64_t kNodesMax = 1024;
constexpr int64_t kWordBits = 8 * static_cast<int64_t>(sizeof(unsigned long));

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// A read that the compiler may not leave out.
void Touch(const std::byte* byte) { (void)*static_cast<const volatile std::byte*>(byte); }

}  // namespace

std::span<const std::byte> PagesBegunIn(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t first = RoundUp(begin, PageBytes());
  const uintptr_t end = RoundUp(begin + memory.size(), PageBytes());
  if (memory.empty() || first >= end) return {};
  return {memory.data() + (first - begin), end - first};
}

PagesPlaced MovePagesTo(std::span<const std::byte> memory, int64_t node) {
  PagesPlaced result;
  const std::span<const std::byte> pages = PagesBegunIn(memory);
  const size_t page = PageBytes();
  std::array<void*, kBatch> addresses;
  std::array<int, kBatch> nodes;
  std::array<int, kBatch> status;
  nodes.fill(static_cast<int>(node));
  for (size_t done = 0; done < pages.size();) {
    const size_t count = std::min(kBatch, (pages.size() - done) / page);
    for (size_t i = 0; i < count; ++i) {
      const std::byte* address = pages.data() + done + i * page;
      Touch(address);
      addresses[i] = const_cast<std::byte*>(address);
    }
    status.fill(-1);
    syscall(SYS_move_pages, 0, count, addresses.data(), nodes.data(), status.data(), MPOL_MF_MOVE);
    result.pages += static_cast<int64_t>(count);
    result.there += std::count(status.begin(), status.begin() + static_cast<int64_t>(count),
                               static_cast<int>(node));
    done += count * page;
  }
  return result;
}

bool SpreadPages(std::span<std::byte> memory, std::span<const int64_t> nodes) {
  const std::span<const std::byte> pages = PagesBegunIn(memory);
  if (pages.empty() || nodes.empty()) return true;
  std::array<unsigned long, kNodesMax / kWordBits> mask = {};
  for (const int64_t node : nodes) {
    if (node < 0 || node >= kNodesMax) return false;
    mask[static_cast<size_t>(node / kWordBits)] |= 1ul << (node % kWordBits);
  }
  return syscall(SYS_mbind, const_cast<std::byte*>(pages.data()), pages.size(), MPOL_INTERLEAVE,
                 mask.data(), kNodesMax, MPOL_MF_MOVE) == 0;
}

}  // namespace kvant
