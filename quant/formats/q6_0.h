// Q6_0: 32 values as 6-bit codes with one scale. 26 bytes, 6.5 bits per value. Of ik_llama.cpp.
//
//   byte   0    1    2                                    9   10             11             25
//        | d (f16) | h24 : h8 : h16 : h0 | ... | h31 .. h7 | l16  :  l0  | ... | l31  :  l15 |
//                    bits 7-6, 5-4, 3-2, 1-0                bits 7..4 : 3..0
//
//   c[i] = h[i] * 16 + l[i],  value[i] = d * (c[i] - 32)
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/scale_search.h"

namespace kvant::quant {

struct Q6_0 {
  static constexpr TensorType kType{133};
  static constexpr const char* kName = "Q6_0";
  static constexpr int kBlockValues = 32;
  static constexpr bool kHasOffsets = false;

  struct Block {
    PackedHalf d;
    uint8_t high[8];
    uint8_t low[16];
  };
  static_assert(sizeof(Block) == 26 && alignof(Block) == 1);
  using Low = BitPlane<4, 16>;

  static constexpr ScaleShape kShape = {.codes = {-32, 31}};

  // Where the upper bits of value i begin in byte i % 8.
  static constexpr int HighShift(int i) { return 2 * (i / 16) + 4 * (i / 8 % 2); }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      const int high = block.high[i % 8] >> HighShift(i) & 3;
      out.codes[i] = static_cast<int8_t>((high << 4 | Low::Get(block.low, i)) - 32);
    }
    SetScale(out, 0, kBlockValues, block.d.value());
  }

  static void Pack(const BlockFit& fit, Block& block) {
    block.d = fit.d;
    Low::PutAll(block.low, fit.codes, kBlockValues, 32, 0);
    for (int i = 0; i < kBlockValues; ++i) {
      const int high = (fit.codes[i] + 32) >> 4;
      block.high[i % 8] = static_cast<uint8_t>(block.high[i % 8] | high << HighShift(i));
    }
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitBlock(values, importance, kShape), block);
  }
};

}  // namespace kvant::quant
