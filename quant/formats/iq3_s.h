// IQ3_S: 256 values as magnitudes from a grid of 512 points with 4 coordinates, all signs, and a
// 4-bit scale for each 32. 110 bytes, 3.4375 bits per value.
//
//   byte   0    1    2              65   66             73   74        105   106           109
//        | d (f16) | low 8 of p0..p63  | high 1 of p0..p63 | signs 0..31   | s1:s0 ... s7:s6 |
//                                        8k+7, .., 8k                        7..4:3..0
//
//   value[i] = (d * (2 s[i / 32] + 1)) * +-point(p[i / 4])[i % 4], minus where bit i % 8 of
//   signs[i / 8] is set
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/formats/iq_grids.h"
#include "quant/search/grid_fit.h"

namespace kvant::quant {

struct IQ3_S {
  static constexpr TensorType kType{21};
  static constexpr const char* kName = "IQ3_S";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;

  struct Block {
    PackedHalf d;
    uint8_t points_low[64];
    uint8_t points_high[8];
    uint8_t signs[32];
    uint8_t scales[4];
  };
  static_assert(sizeof(Block) == 110 && alignof(Block) == 1);
  using PointsHigh = BitPlane<1, 1>;
  using Scales = BitPlane<4, 1>;

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int v = 0; v < 64; ++v) {
      const int point = block.points_low[v] | PointsHigh::Get(block.points_high, v) << 8;
      PutSigned(kIq3SGrid.points[point], 4, block.signs[v / 2] >> (v % 2 * 4), out.codes + 4 * v);
    }
    const float d = block.d.value();
    for (int g = 0; g < 8; ++g) {
      const int scale = Scales::Get(block.scales, g);
      SetScale(out, 32 * g, 32, d * static_cast<float>(2 * scale + 1));
    }
  }

  static void Pack(const GridFit& fit, Block& block) {
    block.d = fit.d;
    for (int g = 0; g < 8; ++g) Scales::Put(block.scales, g, fit.scales[g]);
    for (int v = 0; v < 64; ++v) {
      block.points_low[v] = static_cast<uint8_t>(fit.points[v]);
      PointsHigh::Put(block.points_high, v, fit.points[v] >> 8);
    }
    for (int k = 0; k < 32; ++k) block.signs[k] = fit.signs[k];
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq3S(values, importance), block);
  }
};

}  // namespace kvant::quant
