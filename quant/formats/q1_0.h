// Q1_0: 128 signs with one scale. 18 bytes, 1.125 bits per value.
//
//   byte   0    1    2                                17
//        | d (f16) | signs: bit i % 8 of byte 2 + i / 8 |
//
//   value[i] = bit ? d : -d
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/level_fit.h"

namespace kvant::quant {

struct Q1_0 {
  static constexpr TensorType kType{41};
  static constexpr const char* kName = "Q1_0";
  static constexpr int kBlockValues = 128;
  static constexpr bool kHasOffsets = false;

  struct Block {
    PackedHalf d;
    uint8_t signs[16];
  };
  static_assert(sizeof(Block) == 18 && alignof(Block) == 1);
  using Signs = BitPlane<1, 1>;

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      out.codes[i] = static_cast<int8_t>(2 * Signs::Get(block.signs, i) - 1);
    }
    SetScale(out, 0, kBlockValues, block.d.value());
  }

  static void Pack(const LevelFit& fit, Block& block) {
    block.d = fit.d;
    Signs::PutAll(block.signs, fit.codes, kBlockValues, 0, 0);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitSigns(values, importance), block);
  }
};

}  // namespace kvant::quant
