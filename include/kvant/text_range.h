// A range of bytes of a text: [begin, end).
//
// Thread-safety: values.
#pragma once

#include <cstddef>

namespace kvant {

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

}  // namespace kvant
