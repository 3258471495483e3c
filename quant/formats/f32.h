// F32: IEEE binary32 values, little-endian, one per block.
//
//   byte   0          1          2          3
//        | mantissa 7..0 | 15..8 | e0 22..16 | sign e7..1 |
//
// Encoding and decoding copy the bits, so every value survives, NaN payloads included.
#pragma once

#include <bit>
#include <cstdint>

#include "quant/format.h"

namespace kvant::quant {

struct F32 {
  static constexpr TensorType kType{0};
  static constexpr const char* kName = "F32";
  static constexpr int kBlockValues = 1;

  struct Block {
    uint8_t bytes[4];
  };
  static_assert(sizeof(Block) == 4);

  static void Decode(const Block& block, float* values) {
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(block.bytes[i]) << 8 * i;
    *values = std::bit_cast<float>(bits);
  }

  static void Encode(const float* values, const float* /*importance*/, Block& block) {
    const uint32_t bits = std::bit_cast<uint32_t>(*values);
    for (int i = 0; i < 4; ++i) block.bytes[i] = static_cast<uint8_t>(bits >> 8 * i);
  }
};

}  // namespace kvant::quant
