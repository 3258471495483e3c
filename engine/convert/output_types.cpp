// The types of the matrices that a conversion writes.
#include "engine/convert/weights.h"
#include "quant/formats/q8_0.h"

namespace kvant::convert {
namespace {

constexpr OutputType kOutputTypes[] = {
    {"f32", "F32", 0},
    {"f16", "F16", 1},
    {"bf16", "BF16", 32},
    {"q8_0", quant::Q8_0::kName, 7},
};

}  // namespace

const OutputType* FindOutputType(std::string_view name) {
  for (const OutputType& type : kOutputTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

const OutputType* NaturalOutputType(const formats::SafetensorsModel& model) {
  for (const formats::SafetensorsTensor& tensor : model.tensors()) {
    if (tensor.shape.size() < 2) continue;
    for (const OutputType& type : kOutputTypes) {
      if (type.format_name == tensor.type->name) return &type;
    }
  }
  return FindOutputType("f32");
}

}  // namespace kvant::convert
