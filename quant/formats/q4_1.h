// Q4_1: 32 values as 4-bit codes with a scale and a minimum. 20 bytes, 5 bits per value.
//
//   byte   0    1    2    3    4              5                      19
//        | d (f16) | m (f16) | c16  :  c0  | c17  :  c1  |  ...  | c31  :  c15 |
//                              bits 7..4 : 3..0
//
//   value[i] = d * c[i] + m
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/scale_search.h"

namespace kvant::quant {

struct Q4_1 {
  static constexpr TensorType kType{3};
  static constexpr const char* kName = "Q4_1";
  static constexpr int kBlockValues = 32;
  static constexpr bool kHasOffsets = true;

  struct Block {
    PackedHalf d;
    PackedHalf m;
    uint8_t codes[16];
  };
  static_assert(sizeof(Block) == 20 && alignof(Block) == 1);
  using Codes = BitPlane<4, 16>;

  static constexpr LineShape kShape = {.code_max = 15};

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      out.codes[i] = static_cast<int8_t>(Codes::Get(block.codes, i));
    }
    SetScale(out, 0, kBlockValues, block.d.value(), -block.m.value());
  }

  static void Pack(const BlockFit& fit, Block& block) {
    block.d = fit.d;
    block.m = fit.m;
    Codes::PutAll(block.codes, fit.codes, kBlockValues, 0, 0);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitBlock(values, importance, kShape), block);
  }
};

}  // namespace kvant::quant
