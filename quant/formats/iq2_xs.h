// IQ2_XS: 256 values as magnitudes from a grid of 512 points with 8 coordinates, seven of eight
// signs, and a 4-bit scale for each 16. 74 bytes, 2.3125 bits per value.
//
//   byte   0    1    2                 65   66              73
//        | d (f16) | v0 .. v31 (u16)      | s1:s0 ... s15:s14 |
//                                           7..4:3..0
//
//   v[k], bits 15..0: | signs (7) | point (9) |
//
//   value[i] = (d / 8 * (2 s[i / 16] + 1)) * +-point(v[i / 8])[i % 8]; bit j of the signs belongs
//   to value j, and the eighth sign makes the number of minus signs even
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/formats/iq_grids.h"
#include "quant/packed_word.h"
#include "quant/search/grid_fit.h"

namespace kvant::quant {

struct IQ2_XS {
  static constexpr TensorType kType{17};
  static constexpr const char* kName = "IQ2_XS";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr bool kNeedsImportance = true;

  struct Block {
    PackedHalf d;
    PackedU16 vectors[32];
    uint8_t scales[8];
  };
  static_assert(sizeof(Block) == 74 && alignof(Block) == 1);
  using Scales = BitPlane<4, 1>;

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int v = 0; v < 32; ++v) {
      const uint32_t vector = block.vectors[v].value();
      PutSigned(kIq2XsGrid.points[vector & 511], 8, EvenSigns(static_cast<int>(vector >> 9)),
                out.codes + 8 * v);
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
      block.vectors[v].Set(fit.points[v] | (uint32_t{fit.signs[v]} & 127) << 9);
    }
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq2Xs(values, importance), block);
  }
};

}  // namespace kvant::quant
