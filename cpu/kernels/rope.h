// Rotary embedding: which dimensions of a vector make a pair.
#pragma once

#include <cstdint>

namespace kvant::cpu {

enum class RopeStyle : uint8_t {
  kInterleaved,  // pairs (2i, 2i + 1): llama in GGUF
  kHalves,       // pairs (i, i + n_rot / 2): NeoX, phi3
};

}  // namespace kvant::cpu
