// IQ2_XXS: 256 values as magnitudes from a grid of 256 points with 8 coordinates, seven of eight
// signs, and a 4-bit scale for each 32. 66 bytes, 2.0625 bits per value.
//
//   byte   0    1    2           9          58         65
//        | d (f16) | group 0      |  ...   | group 7      |    32 values each
//
//   group: | p0 | p1 | p2 | p3 | word (u32): s (4 bits) | signs 3 (7 bits) | 2 | 1 | signs 0 |
//
//   value[i] = (d / 8 * (2 s + 1)) * +-point(p[i / 8])[i % 8]; bit j of a field of signs belongs to
//   value j, and the eighth sign makes the number of minus signs even
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/formats/iq_grids.h"
#include "quant/packed_word.h"
#include "quant/search/grid_fit.h"

namespace kvant::quant {

struct IQ2_XXS {
  static constexpr TensorType kType{16};
  static constexpr const char* kName = "IQ2_XXS";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr bool kNeedsImportance = true;

  struct Group {
    uint8_t points[4];
    PackedU32 signs;
  };
  struct Block {
    PackedHalf d;
    Group groups[8];
  };
  static_assert(sizeof(Block) == 66 && alignof(Block) == 1);

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    const float unit = block.d.value() * 0.125f;
    for (int g = 0; g < 8; ++g) {
      const uint32_t signs = block.groups[g].signs.value();
      for (int v = 0; v < 4; ++v) {
        PutSigned(kIq2XxsGrid.points[block.groups[g].points[v]], 8,
                  EvenSigns(static_cast<int>(signs >> (7 * v) & 127)), out.codes + 32 * g + 8 * v);
      }
      SetScale(out, 32 * g, 32, unit * static_cast<float>(2 * (signs >> 28) + 1));
    }
  }

  static void Pack(const GridFit& fit, Block& block) {
    block.d = fit.d;
    for (int g = 0; g < 8; ++g) {
      uint32_t signs = uint32_t{fit.scales[g]} << 28;
      for (int v = 0; v < 4; ++v) {
        block.groups[g].points[v] = static_cast<uint8_t>(fit.points[4 * g + v]);
        signs |= (uint32_t{fit.signs[4 * g + v]} & 127) << (7 * v);
      }
      block.groups[g].signs.Set(signs);
    }
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq2Xxs(values, importance), block);
  }
};

}  // namespace kvant::quant
