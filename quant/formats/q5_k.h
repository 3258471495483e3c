// Q5_K: 256 values as 5-bit codes; each 32 have a 6-bit scale and a 6-bit minimum in units of the
// block's d and dmin. 176 bytes, 5.5 bits per value.
//
//   byte   0    1    2    3      4                      15   16         47   48         175
//        | d (f16) | dmin (f16) | 8 pairs (s, m), 12 B     | high bits h   | low bits l    |
//                                 quant/formats/scale_min_pairs.h
//
//   h: byte b, bit k = h[b + 32 k]
//   l: four runs of 32 bytes for 64 values each; byte b of a run = | l[b + 32] | l[b] |
//
//   c[i] = h[i] * 16 + l[i],  value[i] = (d * s[i / 32]) * c[i] - dmin * m[i / 32]
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/formats/scale_min_pairs.h"
#include "quant/search/scale_search.h"

namespace kvant::quant {

struct Q5_K {
  static constexpr TensorType kType{13};
  static constexpr const char* kName = "Q5_K";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = true;

  struct Block {
    PackedHalf d;
    PackedHalf dmin;
    ScaleMinPairs pairs;
    uint8_t high[32];
    uint8_t low[128];
  };
  static_assert(sizeof(Block) == 176 && alignof(Block) == 1);
  using High = BitPlane<1, 32>;
  using Low = BitPlane<4, 32>;

  static constexpr SuperblockShape kShape = {
      .group_values = 32, .codes = {0, 31}, .scales = {0, 63}, .offset_max = 63};

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = High::Get(block.high, i) << 4 | Low::Get(block.low, i);
      out.codes[i] = static_cast<int8_t>(code);
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
    Low::PutAll(block.low, fit.codes, kBlockValues, 0, 0);
    High::PutAll(block.high, fit.codes, kBlockValues, 0, 4);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitBlock(values, importance, kShape), block);
  }
};

}  // namespace kvant::quant
