// Fuzzes the GGUF reader: whatever the bytes are, it must refuse them in one clean line or hand out
// only what lies inside them. The sanitizers watch the reads, the checks below the promises.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/gguf.h"

namespace {

using kvant::formats::GgufArray;
using kvant::formats::GgufFile;
using kvant::formats::GgufTensor;
using kvant::formats::GgufType;
using kvant::formats::GgufValue;

void Require(bool promise) {
  if (!promise) __builtin_trap();
}

// Reads all bytes in a way that is not optimised away.
void Touch(const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  uint8_t sum = 0;
  for (size_t i = 0; i < size; ++i) sum ^= bytes[i];
  asm volatile("" : : "r"(sum));
}

void TouchValue(const GgufValue& value) {
  if (const auto* text = std::get_if<std::string_view>(&value.value)) {
    Touch(text->data(), text->size());
  }
  const auto* array = std::get_if<GgufArray>(&value.value);
  if (array == nullptr) return;
  Require(array->type == GgufType::kString ? array->strings.size() == array->count
                                           : array->count == 0 || array->data != nullptr);
  for (const std::string_view text : array->strings) Touch(text.data(), text.size());
  if (array->type != GgufType::kString) Touch(array->data, array->count);
}

void CheckMetadata(const GgufFile& file) {
  for (const auto& [key, value] : file.metadata()) {
    Require(file.Find(key) == &value);
    TouchValue(value);
    // At most one of the getters accepts a value.
    const int accepted = file.GetU32(key).ok() + file.GetF32(key).ok() + file.GetBool(key).ok() +
                         file.GetString(key).ok() + file.GetArray(key, GgufType::kString).ok() +
                         file.GetArray(key, GgufType::kInt32).ok();
    Require(accepted <= 1);
  }
}

void CheckTensors(const GgufFile& file, std::span<const std::byte> bytes) {
  for (const GgufTensor& tensor : file.tensors()) {
    Require(file.FindTensor(tensor.name) == &tensor);
    Require(tensor.data >= bytes.data() && tensor.size_bytes <= bytes.size());
    Require(tensor.data <= bytes.data() + bytes.size() - tensor.size_bytes);
    Require(tensor.size_bytes == 0 ||
            static_cast<uint64_t>(tensor.data - bytes.data()) % file.alignment() == 0);
    Require(tensor.rows() >= 0 && tensor.n_values() >= 0);  // a tensor may have no elements
    Require(tensor.format == nullptr ||
            static_cast<uint64_t>(tensor.rows() * tensor.row_bytes()) == tensor.size_bytes);
    Require(!kvant::formats::TensorTypeName(tensor).empty());
    Touch(tensor.data, tensor.size_bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  // A file that can be computed with can also be listed.
  const bool readable = GgufFile::Parse(bytes, "fuzz").ok();
  const auto file = GgufFile::Parse(bytes, "fuzz", kvant::formats::UnreadableTensors::kListed);
  Require(file.ok() || !readable);
  if (!file.ok()) {
    const std::string& message = file.error().message;
    Require(message.starts_with("fuzz: ") && message.size() < 2000);
    Require(std::none_of(message.begin(), message.end(), [](char c) { return c >= 0 && c < ' '; }));
    return 0;
  }
  CheckMetadata(*file);
  CheckTensors(*file, bytes);
  return 0;
}
