// IQ2_S: 256 values as magnitudes from a grid of 1024 points with 8 coordinates, all signs, and a
// 4-bit scale for each 16. 82 bytes, 2.5625 bits per value.
//
//   byte   0    1    2                33   34        65   66            73   74              81
//        | d (f16) | low 8 of p0..p31    | signs 0..31  | high 2 of p0..p31 | s1:s0 ... s15:s14 |
//                                                         4k+3, .., 4k        7..4:3..0
//
//   value[i] = (d / 8 * (2 s[i / 16] + 1)) * +-point(p[i / 8])[i % 8], minus where bit i % 8 of
//   signs[i / 8] is set
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/formats/iq_grids.h"
#include "quant/search/grid_fit.h"

namespace kvant::quant {

struct IQ2_S {
  static constexpr TensorType kType{22};
  static constexpr const char* kName = "IQ2_S";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr bool kNeedsImportance = true;

  struct Block {
    PackedHalf d;
    uint8_t points_low[32];
    uint8_t signs[32];
    uint8_t points_high[8];
    uint8_t scales[8];
  };
  static_assert(sizeof(Block) == 82 && alignof(Block) == 1);
  using PointsHigh = BitPlane<2, 1>;
  using Scales = BitPlane<4, 1>;

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int v = 0; v < 32; ++v) {
      const int point = block.points_low[v] | PointsHigh::Get(block.points_high, v) << 8;
      PutSigned(kIq2SGrid.points[point], 8, block.signs[v], out.codes + 8 * v);
    }
    const float unit = block.d.value() * 0.125f;
    for (int g = 0; g < 16; ++g) {
      const int scale = Scales::Get(block.scales, g);
      SetScale(out, 16 * g, 16, unit * static_cast<float>(2 * scale + 1));
    }
  }

  static void Pack(const GridFit& fit, Block& block) {
    block.d = fit.d;
    for (int g = 0; g < 16; ++g) Scales::Put(block.scales, g, fit.scales[g]);
    for (int v = 0; v < 32; ++v) {
      block.points_low[v] = static_cast<uint8_t>(fit.points[v]);
      PointsHigh::Put(block.points_high, v, fit.points[v] >> 8);
      block.signs[v] = fit.signs[v];
    }
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq2S(values, importance), block);
  }
};

}  // namespace kvant::quant
