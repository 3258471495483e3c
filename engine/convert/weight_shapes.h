// The shapes of the tensors to be written, and the checks of the folder's tensors that they are
// made of. Thread-safety: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/convert/output_tensor.h"
#include "formats/safetensors.h"

namespace kvant::convert {

// Sets dims, and the rows that are taken from each source.
void SetShape(const arch::HfTensor& row, const HfShape& shape, OutputTensor& tensor);

// kNotSupported for a source that holds no plain floats; kCorrupt for one that has another shape
// than config.json says.
Status CheckSource(const formats::SafetensorsModel& model, const formats::SafetensorsTensor& source,
                   const arch::HfTensor& row, const HfShape& shape);
// Sets the first rows of the shards that a tensor is made of. kCorrupt where they have other rows
// together than the tensor.
Status PlaceShards(const formats::SafetensorsModel& model, OutputTensor& tensor);
// kNotSupported for a tensor that does not hold these integers.
Status CheckIntegers(const formats::SafetensorsModel& model,
                     const formats::SafetensorsTensor& source,
                     const std::vector<int64_t>& expected);
// kNotSupported where two experts of a layer have different types.
Status CheckSameType(const formats::SafetensorsModel& model,
                     const formats::SafetensorsTensor& first,
                     const formats::SafetensorsTensor& other);

}  // namespace kvant::convert
