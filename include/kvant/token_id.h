// The number of a token in a model's vocabulary: for code that handles tokens but needs no
// tokenizer, such as the KV cache.
#pragma once

#include <cstdint>

namespace kvant {

using TokenId = int32_t;

}  // namespace kvant
