// How much memory this process may still take: the system's free memory, and the rest of the limits
// of the control groups of the process (containers, services).
#pragma once

#include <cstdint>
#include <string>

namespace kvant {

// Where Linux tells it; tests have files of their own.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string groups = "/proc/self/cgroup";   // the control groups of this process
  std::string group_root = "/sys/fs/cgroup";  // where control groups are mounted
};

// The smallest of several sizes: the bytes that the system could give without swapping, and for
// each control group that the process is in, the limit less the bytes in use. Pages of the page
// cache count as free, because they make room. UINT64_MAX where the system tells nothing.
uint64_t AvailableMemory(const MemoryFiles& files = {});

}  // namespace kvant
