// Q2_K: 256 values as 2-bit codes; each 16 have a 4-bit scale and a 4-bit minimum in units of the
// block's d and dmin. 84 bytes, 2.625 bits per value.
//
//   byte   0           15   16                           79   80   81   82     83
//        | m0:s0 ... m15:s15 | codes, 2 bits each          | d (f16) | dmin (f16) |
//          7..4:3..0
//
//   codes: two runs of 32 bytes for 128 values each; byte b of a run, bits 7..0:
//        | c[b + 96] | c[b + 64] | c[b + 32] | c[b] |
//
//   value[i] = (d * s[i / 16]) * c[i] - dmin * m[i / 16]
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/scale_search.h"

namespace kvant::quant {

struct Q2_K {
  static constexpr TensorType kType{10};
  static constexpr const char* kName = "Q2_K";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = true;

  struct Block {
    uint8_t scales[16];
    uint8_t codes[64];
    PackedHalf d;
    PackedHalf dmin;
  };
  static_assert(sizeof(Block) == 84 && alignof(Block) == 1);
  using Codes = BitPlane<2, 32>;

  static constexpr SuperblockShape kShape = {
      .group_values = 16, .codes = {0, 3}, .scales = {0, 15}, .offset_max = 15};

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      out.codes[i] = static_cast<int8_t>(Codes::Get(block.codes, i));
    }
    const float d = block.d.value();
    const float dmin = block.dmin.value();
    for (int group = 0; group < 16; ++group) {
      const int scale = block.scales[group] & 15;
      const int offset = block.scales[group] >> 4;
      SetScale(out, 16 * group, 16, d * static_cast<float>(scale),
               dmin * static_cast<float>(offset));
    }
  }

  static void Pack(const SuperblockFit& fit, Block& block) {
    block.d = fit.d;
    block.dmin = fit.dmin;
    for (int group = 0; group < 16; ++group) {
      block.scales[group] = static_cast<uint8_t>(fit.offsets[group] << 4 | fit.scales[group]);
    }
    Codes::PutAll(block.codes, fit.codes, kBlockValues, 0, 0);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitBlock(values, importance, kShape), block);
  }
};

}  // namespace kvant::quant
