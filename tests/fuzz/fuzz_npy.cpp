// Fuzzes the NumPy reader: an array that it accepts has exactly the values of its shape.
#include <cstdint>
#include <span>

#include "formats/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto array = kvant::formats::NpyParse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!array.ok()) return 0;
  size_t count = 1;
  for (const int64_t length : array->shape) count *= static_cast<size_t>(length);
  if (count != array->values.size()) __builtin_trap();
  return 0;
}
