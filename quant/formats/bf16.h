// BF16: the upper half of IEEE binary32, little-endian, one per block.
//
//   bit   15     14 ... 7     6 ... 0
//       | sign | exponent  | mantissa |
//
// Encoding rounds to nearest even; overflow gives infinity, NaN a quiet NaN.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "quant/format.h"

namespace kvant::quant {

struct Bf16 {
  static constexpr TensorType kType{30};
  static constexpr const char* kName = "BF16";
  static constexpr int kBlockValues = 1;

  struct Block {
    uint8_t low;
    uint8_t high;
  };
  static_assert(sizeof(Block) == 2);

  static void Decode(const Block& block, float* values) {
    *values = Bf16ToF32(static_cast<uint16_t>(block.low | block.high << 8));
  }

  static void Encode(const float* values, const float* /*importance*/, Block& block) {
    const uint16_t bits = F32ToBf16(*values);
    block = {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8)};
  }
};

}  // namespace kvant::quant
