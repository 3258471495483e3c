// Q8_0: 32 values as signed bytes with one scale. 34 bytes, 8.5 bits per value.
//
//   byte   0    1    2     3           33
//        | d (f16) | c0  | c1  | ... | c31 |    two's complement
//
//   value[i] = d * c[i]
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/scale_search.h"

namespace kvant::quant {

struct Q8_0 {
  static constexpr TensorType kType{8};
  static constexpr const char* kName = "Q8_0";
  static constexpr int kBlockValues = 32;
  static constexpr bool kHasOffsets = false;

  struct Block {
    PackedHalf d;
    int8_t codes[32];
  };
  static_assert(sizeof(Block) == 34 && alignof(Block) == 1);

  static constexpr PeakShape kShape = {.codes = {-127, 127}};

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) out.codes[i] = block.codes[i];
    SetScale(out, 0, kBlockValues, block.d.value());
  }

  static void Pack(const BlockFit& fit, Block& block) {
    block.d = fit.d;
    for (int i = 0; i < kBlockValues; ++i) block.codes[i] = fit.codes[i];
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitBlock(values, importance, kShape), block);
  }
};

}  // namespace kvant::quant
