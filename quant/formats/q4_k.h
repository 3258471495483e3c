// Q4_K: 256 values as 4-bit codes; each 32 have a 6-bit scale and a 6-bit minimum in units of the
// block's d and dmin. 144 bytes, 4.5 bits per value.
//
//   byte   0    1    2    3      4                      15   16                        143
//        | d (f16) | dmin (f16) | 8 pairs (s, m), 12 B     | codes, 4 bits each, 128 B    |
//                                 quant/formats/scale_min_pairs.h
//
//   codes: four runs of 32 bytes for 64 values each; byte b of a run = | c[b + 32] | c[b] |
//
//   value[i] = (d * s[i / 32]) * c[i] - dmin * m[i / 32]
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/formats/scale_min_pairs.h"
#include "quant/search/scale_search.h"

namespace kvant::quant {

struct Q4_K {
  static constexpr TensorType kType{12};
  static constexpr const char* kName = "Q4_K";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = true;

  struct Block {
    PackedHalf d;
    PackedHalf dmin;
    ScaleMinPairs pairs;
    uint8_t codes[128];
  };
  static_assert(sizeof(Block) == 144 && alignof(Block) == 1);
  using Codes = BitPlane<4, 32>;

  static constexpr SuperblockShape kShape = {
      .group_values = 32, .codes = {0, 15}, .scales = {0, 63}, .offset_max = 63};

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      out.codes[i] = static_cast<int8_t>(Codes::Get(block.codes, i));
    }
    const float d = block.d.value();
    const float dmin = block.dmin.value();
    for (int pair = 0; pair < ScaleMinPairs::kPairs; ++pair) {
      SetScale(out, 32 * pair, 32, d * static_cast<float>(block.pairs.scale(pair)),
               dmin * static_cast<float>(block.pairs.min(pair)));
    }
  }

  static void Pack(const SuperblockFit& fit, Block& block) {
    block.d = fit.d;
    block.dmin = fit.dmin;
    block.pairs = ScaleMinPairs::Pack(fit.scales, fit.offsets);
    Codes::PutAll(block.codes, fit.codes, kBlockValues, 0, 0);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitBlock(values, importance, kShape), block);
  }
};

}  // namespace kvant::quant
