// Tensors whose rows lie interleaved (quant/interleaved/interleaved.h), in plain rows: done once,
// when a file is opened by somebody who computes with it.
#pragma once

#include "base/result.h"
#include "formats/gguf.h"

namespace kvant::formats {

// Replaces all such tensors of the file, whose sizes have been checked. kOutOfMemory.
Result<UnpackedTensors> UnpackInterleaved(GgufFile& file);

}  // namespace kvant::formats
