// IQ1_M: 256 values as points of a grid of 8 ternary values, each with a shift of +-1/8, and a
// 3-bit scale for each 16. The half-precision d is scattered over the scales. 56 bytes, 1.75 bits
// per value.
//
//   byte   0                 31   32             47   48                   55
//        | low 8 of p0 .. p31   | h1:h0 ... h31:h30 | 4 words t0 .. t3 (u16)  |
//                                 7..4:3..0
//
//   h[v] = | minus | high 3 bits of p[v] |
//   t[k], bits 15..0: | bits 4k..4k+3 of d | s[4k + 3] (3) | s[4k + 2] | s[4k + 1] | s[4k] |
//
//   value[i] = (d * (2 s[i / 16] + 1)) * (point(p[i / 8])[i % 8] +- 1/8), the points being -1, 0, 1
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/formats/iq_grids.h"
#include "quant/packed_word.h"
#include "quant/search/grid_fit.h"

namespace kvant::quant {

struct IQ1_M {
  static constexpr TensorType kType{29};
  static constexpr const char* kName = "IQ1_M";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr bool kNeedsImportance = true;

  struct Block {
    uint8_t points_low[32];
    uint8_t points_high[16];
    PackedU16 scales[4];
  };
  static_assert(sizeof(Block) == 56 && alignof(Block) == 1);
  using PointsHigh = BitPlane<4, 1>;

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int v = 0; v < 32; ++v) {
      const int high = PointsHigh::Get(block.points_high, v);
      const int point = block.points_low[v] | (high & 7) << 8;
      const int shift = (high & 8) != 0 ? -1 : 1;
      for (int j = 0; j < 8; ++j) {
        out.codes[8 * v + j] = static_cast<int8_t>(kIq1Grid.points[point][j] + shift);
      }
    }
    uint32_t d = 0;
    for (int k = 0; k < 4; ++k) d |= block.scales[k].value() >> 12 << (4 * k);
    const float unit = PackedHalf::FromBits(static_cast<uint16_t>(d)).value() * 0.125f;
    for (int g = 0; g < 16; ++g) {
      const uint32_t scale = block.scales[g / 4].value() >> (3 * (g % 4)) & 7;
      SetScale(out, 16 * g, 16, unit * static_cast<float>(2 * scale + 1));
    }
  }

  static void Pack(const GridFit& fit, Block& block) {
    for (int v = 0; v < 32; ++v) {
      block.points_low[v] = static_cast<uint8_t>(fit.points[v]);
      PointsHigh::Put(block.points_high, v, (fit.minus[v] ? 8 : 0) | fit.points[v] >> 8);
    }
    for (int k = 0; k < 4; ++k) {
      uint32_t word = (uint32_t{fit.d.bits()} >> (4 * k) & 15) << 12;
      for (int g = 0; g < 4; ++g) word |= uint32_t{fit.scales[4 * k + g]} << (3 * g);
      block.scales[k].Set(word);
    }
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq1M(values, importance), block);
  }
};

}  // namespace kvant::quant
