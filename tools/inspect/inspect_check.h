// kvant inspect --check-tensors: whether all weights are finite.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "formats/gguf.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

enum class FindingsForm : uint8_t { kText, kJson };

// Reads all weights and writes the tensors that hold NaN or infinite values. True if there are
// none. `threads`: 0 for the default.
Result<bool> CheckWeights(const formats::GgufFile& file, int threads, FindingsForm form,
                          ResultStream& out);

}  // namespace kvant::tools
