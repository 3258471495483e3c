// How the bytes of a model file come into memory.
#pragma once

#include <cstdint>
#include <functional>

namespace kvant {

enum class FileAccess : unsigned char {
  kMap,   // shared pages of the page cache, no second copy
  kRead,  // read into anonymous memory (for file systems where mapping is slow)
};

// Told how many bytes of a file's `total` are in memory, for every 64 MiB of them and at the end;
// false ends the reading with kCancelled. A file that is mapped is there at once.
using ReadProgress = std::function<bool(uint64_t done, uint64_t total)>;

}  // namespace kvant
