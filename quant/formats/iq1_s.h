// IQ1_S: 256 values as points of a grid of 8 ternary values, with a 3-bit scale and a shift of
// +-1/8 for each 32. 50 bytes, 1.5625 bits per value.
//
//   byte   0    1    2                33   34              49
//        | d (f16) | low 8 of p0..p31    | h0 .. h7 (u16)    |
//
//   h[g], bits 15..0: | minus | s[g] (3) | high 3 of p[4g + 3] | p[4g + 2] | p[4g + 1] | p[4g] |
//
//   value[i] = (d * (2 s[i / 32] + 1)) * (point(p[i / 8])[i % 8] +- 1/8), the points being -1, 0, 1
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/formats/iq_grids.h"
#include "quant/packed_word.h"
#include "quant/search/grid_fit.h"

namespace kvant::quant {

struct IQ1_S {
  static constexpr TensorType kType{19};
  static constexpr const char* kName = "IQ1_S";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr bool kNeedsImportance = true;

  struct Block {
    PackedHalf d;
    uint8_t points_low[32];
    PackedU16 high[8];
  };
  static_assert(sizeof(Block) == 50 && alignof(Block) == 1);

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    const float unit = block.d.value() * 0.125f;
    for (int v = 0; v < 32; ++v) {
      const uint32_t high = block.high[v / 4].value();
      const uint32_t point = block.points_low[v] | (high >> (3 * (v % 4)) & 7) << 8;
      const int shift = (high & 0x8000) != 0 ? -1 : 1;
      for (int j = 0; j < 8; ++j) {
        out.codes[8 * v + j] = static_cast<int8_t>(kIq1Grid.points[point][j] + shift);
      }
    }
    for (int g = 0; g < 8; ++g) {
      const uint32_t scale = block.high[g].value() >> 12 & 7;
      SetScale(out, 32 * g, 32, unit * static_cast<float>(2 * scale + 1));
    }
  }

  static void Pack(const GridFit& fit, Block& block) {
    block.d = fit.d;
    for (int g = 0; g < 8; ++g) {
      uint32_t high = uint32_t{fit.minus[4 * g]} << 15 | uint32_t{fit.scales[g]} << 12;
      for (int v = 0; v < 4; ++v) {
        const uint32_t point = fit.points[4 * g + v];
        block.points_low[4 * g + v] = static_cast<uint8_t>(point);
        high |= point >> 8 << (3 * v);
      }
      block.high[g].Set(high);
    }
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq1S(values, importance), block);
  }
};

}  // namespace kvant::quant
