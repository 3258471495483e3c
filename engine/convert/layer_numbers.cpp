#include "engine/convert/layer_numbers.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "engine/convert/folder_tensors.h"
#include "formats/quoted.h"
#include "quant/format_list.h"

namespace kvant::convert {
namespace {

using arch::HfNumber;
using formats::Quoted;
using formats::SafetensorsModel;
using formats::SafetensorsTensor;

Result<float> ReadNumber(const SafetensorsModel& model, const SafetensorsTensor& tensor) {
  const bool is_one = std::ranges::all_of(tensor.shape, [](int64_t size) { return size == 1; });
  const quant::FormatTraits* format = quant::FindFormat(tensor.type->name);
  if (!is_one || format == nullptr || format->quantized()) {
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected one float", model.FileOf(tensor),
                     Quoted(tensor.name));
  }
  float value = 0;
  format->decode(tensor.data, &value, 1);
  if (std::isfinite(value)) return value;
  return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected a finite number, found {}",
                   model.FileOf(tensor), Quoted(tensor.name), value);
}

}  // namespace

Status AddLayerNumbers(const arch::HfFamily& family, int64_t layers, const SafetensorsModel& model,
                       formats::GgufWriter& writer) {
  for (const HfNumber& number : family.numbers) {
    std::vector<float> values;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const std::string name = WithNumber(number.hf_name, layer);
      const SafetensorsTensor* tensor = model.Find(name);
      if (tensor == nullptr && !number.otherwise.has_value()) {
        return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing", model.files().front(),
                         Quoted(name));
      }
      float value = number.otherwise.value_or(0);
      if (tensor != nullptr) {
        KVANT_ASSIGN(value, ReadNumber(model, *tensor));
      }
      values.push_back(value);
    }
    writer.AddF32s(std::string(number.key), values);
  }
  return {};
}

}  // namespace kvant::convert
