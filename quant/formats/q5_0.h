// Q5_0: 32 values as 5-bit codes with one scale. 22 bytes, 5.5 bits per value.
//
//   byte   0    1    2            5    6              7                      21
//        | d (f16) | high bits h   | l16  :  l0  | l17  :  l1  |  ...  | l31  :  l15 |
//                    h[i] = bit      bits 7..4 : 3..0
//                    i of 32
//
//   c[i] = h[i] * 16 + l[i],  value[i] = d * (c[i] - 16)
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/scale_search.h"

namespace kvant::quant {

struct Q5_0 {
  static constexpr TensorType kType{6};
  static constexpr const char* kName = "Q5_0";
  static constexpr int kBlockValues = 32;
  static constexpr bool kHasOffsets = false;

  struct Block {
    PackedHalf d;
    uint8_t high[4];
    uint8_t low[16];
  };
  static_assert(sizeof(Block) == 22 && alignof(Block) == 1);
  using High = BitPlane<1, 1>;
  using Low = BitPlane<4, 16>;

  static constexpr ScaleShape kShape = {.codes = {-16, 15}};

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = High::Get(block.high, i) << 4 | Low::Get(block.low, i);
      out.codes[i] = static_cast<int8_t>(code - 16);
    }
    SetScale(out, 0, kBlockValues, block.d.value());
  }

  static void Pack(const BlockFit& fit, Block& block) {
    block.d = fit.d;
    Low::PutAll(block.low, fit.codes, kBlockValues, 16, 0);
    High::PutAll(block.high, fit.codes, kBlockValues, 16, 4);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitBlock(values, importance, kShape), block);
  }
};

}  // namespace kvant::quant
