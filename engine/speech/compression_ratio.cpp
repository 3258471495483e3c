#include "engine/speech/compression_ratio.h"

#include <zlib.h>

#include <new>
#include <vector>

namespace kvant::speech {

double CompressionRatio(std::string_view text) {
  uLongf size = compressBound(text.size());
  std::vector<Bytef> packed(size);
  // The buffer is as large as the bytes can become, so nothing but memory can be missing.
  const int code =
      compress(packed.data(), &size, reinterpret_cast<const Bytef*>(text.data()), text.size());
  if (code != Z_OK) throw std::bad_alloc();
  return static_cast<double>(text.size()) / static_cast<double>(size);
}

}  // namespace kvant::speech
