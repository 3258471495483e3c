// TQ2_0: 256 ternary values as 2-bit codes with one scale; the fourth code stands for 2. 66 bytes,
// 2.0625 bits per value.
//
//   byte   0                       63   64   65
//        | codes, 2 bits each         | d (f16) |
//
//   codes: two runs of 32 bytes for 128 values each; byte b of a run, bits 7..0:
//        | c[b + 96] | c[b + 64] | c[b + 32] | c[b] |
//
//   value[i] = d * (c[i] - 1)
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/level_fit.h"

namespace kvant::quant {

struct TQ2_0 {
  static constexpr TensorType kType{35};
  static constexpr const char* kName = "TQ2_0";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;

  struct Block {
    uint8_t codes[64];
    PackedHalf d;
  };
  static_assert(sizeof(Block) == 66 && alignof(Block) == 1);
  using Codes = BitPlane<2, 32>;

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      out.codes[i] = static_cast<int8_t>(Codes::Get(block.codes, i) - 1);
    }
    SetScale(out, 0, kBlockValues, block.d.value());
  }

  static void Pack(const LevelFit& fit, Block& block) {
    block.d = fit.d;
    Codes::PutAll(block.codes, fit.codes, kBlockValues, 0, 0);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitTernaryUpTo2(values, importance), block);
  }
};

}  // namespace kvant::quant
