// IQ3_XXS: 256 values as magnitudes from a grid of 256 points with 4 coordinates, seven of eight
// signs, and a 4-bit scale for each 32. 98 bytes, 3.0625 bits per value.
//
//   byte   0    1    2          65   66                97
//        | d (f16) | p0 .. p63     | w0 .. w7 (u32)      |
//
//   w[g], bits 31..0: | s (4) | signs 3 (7) | signs 2 (7) | signs 1 (7) | signs 0 (7) |
//
//   value[i] = (d / 4 * (2 s[i / 32] + 1)) * +-point(p[i / 4])[i % 4]; bit j of a field of signs
//   belongs to value j of its eight, and the eighth sign makes the number of minus signs even
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/formats/iq_grids.h"
#include "quant/packed_word.h"
#include "quant/search/grid_fit.h"

namespace kvant::quant {

struct IQ3_XXS {
  static constexpr TensorType kType{18};
  static constexpr const char* kName = "IQ3_XXS";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;

  struct Block {
    PackedHalf d;
    uint8_t points[64];
    PackedU32 signs[8];
  };
  static_assert(sizeof(Block) == 98 && alignof(Block) == 1);

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    const float unit = block.d.value() * 0.25f;
    for (int g = 0; g < 8; ++g) {
      const uint32_t word = block.signs[g].value();
      for (int v = 0; v < 4; ++v) {
        const int signs = EvenSigns(static_cast<int>(word >> (7 * v) & 127));
        const uint8_t* points = block.points + 8 * g + 2 * v;
        int8_t* codes = out.codes + 32 * g + 8 * v;
        PutSigned(kIq3XxsGrid.points[points[0]], 4, signs, codes);
        PutSigned(kIq3XxsGrid.points[points[1]], 4, signs >> 4, codes + 4);
      }
      SetScale(out, 32 * g, 32, unit * static_cast<float>(2 * (word >> 28) + 1));
    }
  }

  static void Pack(const GridFit& fit, Block& block) {
    block.d = fit.d;
    for (int v = 0; v < 64; ++v) block.points[v] = static_cast<uint8_t>(fit.points[v]);
    for (int g = 0; g < 8; ++g) {
      uint32_t word = uint32_t{fit.scales[g]} << 28;
      for (int v = 0; v < 4; ++v) word |= (uint32_t{fit.signs[4 * g + v]} & 127) << (7 * v);
      block.signs[g].Set(word);
    }
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq3Xxs(values, importance), block);
  }
};

}  // namespace kvant::quant
