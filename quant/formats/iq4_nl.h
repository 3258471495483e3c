// IQ4_NL: 32 values as 4-bit codes that stand for 16 unequally spaced levels, with one scale.
// 18 bytes, 4.5 bits per value.
//
//   byte   0    1    2              3                      17
//        | d (f16) | c16  :  c0  | c17  :  c1  |  ...  | c31  :  c15 |
//                    bits 7..4 : 3..0
//
//   value[i] = d * level(c[i])
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/level_fit.h"

namespace kvant::quant {

struct IQ4_NL {
  static constexpr TensorType kType{20};
  static constexpr const char* kName = "IQ4_NL";
  static constexpr int kBlockValues = 32;
  static constexpr bool kHasOffsets = false;

  struct Block {
    PackedHalf d;
    uint8_t codes[16];
  };
  static_assert(sizeof(Block) == 18 && alignof(Block) == 1);
  using Codes = BitPlane<4, 16>;

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      out.codes[i] = kIq4Levels[Codes::Get(block.codes, i)];
    }
    SetScale(out, 0, kBlockValues, block.d.value());
  }

  static void Pack(const LevelFit& fit, Block& block) {
    block.d = fit.d;
    Codes::PutAll(block.codes, fit.codes, kBlockValues, 0, 0);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq4Nl(values, importance), block);
  }
};

}  // namespace kvant::quant
