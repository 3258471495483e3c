// Q4_0: 32 values as 4-bit codes with one scale. 18 bytes, 4.5 bits per value.
//
//   byte   0    1    2              3                      17
//        | d (f16) | c16  :  c0  | c17  :  c1  |  ...  | c31  :  c15 |
//                    bits 7..4 : 3..0
//
//   value[i] = d * (c[i] - 8)
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/scale_search.h"

namespace kvant::quant {

struct Q4_0 {
  static constexpr TensorType kType{2};
  static constexpr const char* kName = "Q4_0";
  static constexpr int kBlockValues = 32;
  static constexpr bool kHasOffsets = false;

  struct Block {
    PackedHalf d;
    uint8_t codes[16];
  };
  static_assert(sizeof(Block) == 18 && alignof(Block) == 1);
  using Codes = BitPlane<4, 16>;

  static constexpr ScaleShape kShape = {.codes = {-8, 7},
                                        .magnitude = Magnitude::kCountsWithoutImportance};

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      out.codes[i] = static_cast<int8_t>(Codes::Get(block.codes, i) - 8);
    }
    SetScale(out, 0, kBlockValues, block.d.value());
  }

  static void Pack(const BlockFit& fit, Block& block) {
    block.d = fit.d;
    Codes::PutAll(block.codes, fit.codes, kBlockValues, 8, 0);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitBlock(values, importance, kShape), block);
  }
};

}  // namespace kvant::quant
