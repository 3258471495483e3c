// Fuzzes the readers of importance matrices: what they accept is finite, its counts divide its
// sums, and it can be merged with itself.
#include <cmath>
#include <cstdint>
#include <span>

#include "formats/gguf.h"
#include "formats/imatrix.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto imatrix = kvant::formats::ParseImatrix(std::as_bytes(std::span(data, size)), "fuzz");
  if (!imatrix.ok()) return 0;
  for (const auto& [name, entry] : imatrix->entries) {
    if (entry.counts.empty() || entry.sums.size() % entry.counts.size() != 0) __builtin_trap();
    kvant::formats::GgufTensor tensor;
    tensor.name = name;
    tensor.dims[2] = static_cast<int64_t>(entry.counts.size());
    tensor.dims[0] = static_cast<int64_t>(entry.sums.size()) / tensor.dims[2];
    const auto means = imatrix->Importance(tensor);
    if (!means.ok() || means->size() != entry.sums.size()) __builtin_trap();
    for (const float mean : *means) {
      if (!std::isfinite(mean) || mean < 0) __builtin_trap();
    }
  }
  const kvant::formats::Imatrix copy = *imatrix;
  if (!imatrix->Merge(copy).ok()) __builtin_trap();
  return 0;
}
