// F16: IEEE binary16 values, little-endian, one per block.
//
//   bit   15     14 ... 10    9 ... 0
//       | sign | exponent  | mantissa |
//
// Encoding is the IEEE conversion: to nearest even, overflow to infinity, NaN to a quiet NaN.
#pragma once

#include "quant/block.h"
#include "quant/format.h"

namespace kvant::quant {

struct F16 {
  static constexpr TensorType kType{1};
  static constexpr const char* kName = "F16";
  static constexpr int kBlockValues = 1;

  struct Block {
    PackedHalf half;
  };
  static_assert(sizeof(Block) == 2);

  static void Decode(const Block& block, float* values) { *values = block.half.value(); }

  static void Encode(const float* values, const float* /*importance*/, Block& block) {
    block.half = PackedHalf::Nearest(*values);
  }
};

}  // namespace kvant::quant
