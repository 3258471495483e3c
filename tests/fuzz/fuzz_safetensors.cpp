// Fuzzes the safetensors reader: the tensors of a file that it accepts lie in the file, and their
// bytes can be read.
#include <cstdint>
#include <span>

#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model =
      kvant::formats::SafetensorsModel::Parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!model.ok()) return 0;
  volatile unsigned sum = 0;
  for (const auto& tensor : model->tensors()) {
    if (model->Find(tensor.name) != &tensor) __builtin_trap();
    int64_t bytes = tensor.type->bytes;
    for (const int64_t dim : tensor.shape) bytes *= dim;
    if (static_cast<uint64_t>(bytes) != tensor.size_bytes) __builtin_trap();
    for (uint64_t i = 0; i < tensor.size_bytes; ++i) {
      sum = sum + std::to_integer<unsigned>(tensor.data[i]);
    }
  }
  return 0;
}
