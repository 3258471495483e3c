// Fuzzes the reader of CTranslate2's model.bin: the variables of a file that it accepts lie in the
// file, have as many bytes as their shapes say, and are found under their names.
#include <cstdint>
#include <span>

#include "formats/ctranslate2.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto model = kvant::formats::CTranslate2Model::Parse(bytes, "fuzz");
  if (!model.ok()) return 0;
  volatile unsigned sum = 0;
  for (const auto& variable : model->variables()) {
    if (model->Find(variable.name) != &variable) __builtin_trap();
    uint64_t expected = static_cast<uint64_t>(variable.type->bytes);
    for (const int64_t dim : variable.shape) expected *= static_cast<uint64_t>(dim);
    if (expected != variable.size_bytes) __builtin_trap();
    for (uint64_t i = 0; i < variable.size_bytes; ++i) {
      sum = sum + std::to_integer<unsigned>(variable.data[i]);
    }
    sum = sum + (model->Number(variable.name).ok() ? 1 : 0);
    sum = sum + (model->Text(variable.name).ok() ? 1 : 0);
  }
  return 0;
}
