// The types of the matrices that a conversion writes.
#include <algorithm>

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

const OutputType* NaturalOutputType(const formats::SafetensorsModel& model,
                                    const Quantization& quantization) {
  const bool integers = std::ranges::any_of(
      model.tensors(), [](const auto& tensor) { return tensor.row_divisors != nullptr; });
  for (const formats::SafetensorsTensor& tensor : model.tensors()) {
    // Among vectors where matrices are integers.
    if (tensor.shape.size() < 2 && !integers) continue;
    if (quantization.declared && IsWeightScale(tensor.name)) continue;
    for (const OutputType& type : kOutputTypes) {
      if (type.format_name == tensor.type->name) return &type;
    }
  }
  return FindOutputType("f32");
}

}  // namespace kvant::convert
