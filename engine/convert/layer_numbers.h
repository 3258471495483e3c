// Numbers of layers that a folder holds as tensors of one value and a GGUF file as metadata: one
// array for all layers (arch::HfFamily::numbers).
//
// Errors name the folder's file and the tensor. Thread-safety: pure.
#pragma once

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "formats/gguf_writer.h"
#include "formats/safetensors.h"

namespace kvant::convert {

Status AddLayerNumbers(const arch::HfFamily& family, int64_t layers,
                       const formats::SafetensorsModel& model, formats::GgufWriter& writer);

}  // namespace kvant::convert
