// How the bytes of a model file come into memory.
#pragma once

namespace kvant {

enum class FileAccess : unsigned char {
  kMap,   // shared pages of the page cache, no second copy
  kRead,  // read into anonymous memory (for file systems where mapping is slow)
};

}  // namespace kvant
