// IQ4_XS: 256 values as 4-bit codes that stand for 16 unequally spaced levels; each 32 have a 6-bit
// scale in units of the block's d. 136 bytes, 4.25 bits per value.
//
//   byte   0    1    2               3   4             7   8                 135
//        | d (f16) | high 2 of s0 .. s7 | low 4 of s0..s7 | codes, 4 bits each  |
//                    4k+3, .., 4k         s[2k+1]:s[2k]
//
//   codes: eight runs of 16 bytes for 32 values each; byte b of a run = | c[b + 16] | c[b] |
//
//   value[i] = (d * (s[i / 32] - 32)) * level(c[i])
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/level_fit.h"

namespace kvant::quant {

struct IQ4_XS {
  static constexpr TensorType kType{23};
  static constexpr const char* kName = "IQ4_XS";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;

  struct Block {
    PackedHalf d;
    uint8_t scales_high[2];
    uint8_t scales_low[4];
    uint8_t codes[128];
  };
  static_assert(sizeof(Block) == 136 && alignof(Block) == 1);
  using ScalesHigh = BitPlane<2, 1>;
  using ScalesLow = BitPlane<4, 1>;
  using Codes = BitPlane<4, 16>;

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      out.codes[i] = kIq4Levels[Codes::Get(block.codes, i)];
    }
    const float d = block.d.value();
    for (int g = 0; g < 8; ++g) {
      const int scale =
          ScalesHigh::Get(block.scales_high, g) << 4 | ScalesLow::Get(block.scales_low, g);
      SetScale(out, 32 * g, 32, d * static_cast<float>(scale - 32));
    }
  }

  static void Pack(const Iq4XsFit& fit, Block& block) {
    block.d = fit.d;
    for (int g = 0; g < 8; ++g) {
      const int scale = fit.scales[g] + 32;
      ScalesLow::Put(block.scales_low, g, scale);
      ScalesHigh::Put(block.scales_high, g, scale >> 4);
    }
    Codes::PutAll(block.codes, fit.codes, kBlockValues, 0, 0);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq4Xs(values, importance), block);
  }
};

}  // namespace kvant::quant
