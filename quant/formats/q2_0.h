// Q2_0: 64 values as 2-bit codes with one scale. 18 bytes, 2.25 bits per value.
//
//   byte   0    1    2                     3                     17
//        | d (f16) | c3 : c2 : c1 : c0   | c7 : c6 : c5 : c4   | ...  c63 .. c60 |
//
//   value[i] = d * (c[i] - 1)
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/level_fit.h"

namespace kvant::quant {

struct Q2_0 {
  static constexpr TensorType kType{42};
  static constexpr const char* kName = "Q2_0";
  static constexpr int kBlockValues = 64;
  static constexpr bool kHasOffsets = false;

  struct Block {
    PackedHalf d;
    uint8_t codes[16];
  };
  static_assert(sizeof(Block) == 18 && alignof(Block) == 1);
  using Codes = BitPlane<2, 1>;

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
    Pack(FitTernaryUpTo2Of64(values, importance), block);
  }
};

}  // namespace kvant::quant
