// Q5_1: 32 values as 5-bit codes with a scale and a minimum. 24 bytes, 6 bits per value.
//
//   byte   0    1    2    3    4            7    8              9                      23
//        | d (f16) | m (f16) | high bits h   | l16  :  l0  | l17  :  l1  |  ...  | l31  :  l15 |
//                              h[i] = bit      bits 7..4 : 3..0
//                              i of 32
//
//   c[i] = h[i] * 16 + l[i],  value[i] = d * c[i] + m
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/scale_search.h"

namespace kvant::quant {

struct Q5_1 {
  static constexpr TensorType kType{7};
  static constexpr const char* kName = "Q5_1";
  static constexpr int kBlockValues = 32;
  static constexpr bool kHasOffsets = true;

  struct Block {
    PackedHalf d;
    PackedHalf m;
    uint8_t high[4];
    uint8_t low[16];
  };
  static_assert(sizeof(Block) == 24 && alignof(Block) == 1);
  using High = BitPlane<1, 1>;
  using Low = BitPlane<4, 16>;

  static constexpr LineShape kShape = {.code_max = 31};

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = High::Get(block.high, i) << 4 | Low::Get(block.low, i);
      out.codes[i] = static_cast<int8_t>(code);
    }
    SetScale(out, 0, kBlockValues, block.d.value(), -block.m.value());
  }

  static void Pack(const BlockFit& fit, Block& block) {
    block.d = fit.d;
    block.m = fit.m;
    Low::PutAll(block.low, fit.codes, kBlockValues, 0, 0);
    High::PutAll(block.high, fit.codes, kBlockValues, 0, 4);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitBlock(values, importance, kShape), block);
  }
};

}  // namespace kvant::quant
