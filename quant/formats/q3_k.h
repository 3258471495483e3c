// Q3_K: 256 values as 3-bit codes; each 16 have a 6-bit scale in units of the block's d.
// 110 bytes, 3.4375 bits per value.
//
//   byte   0          31   32          95   96          107   108   109
//        | high bits h   | low bits l     | scales, 12 B    | d (f16) |
//
//   h: byte b, bit k = h[b + 32 k]
//   l: two runs of 32 bytes for 128 values each; byte b of a run, bits 7..0:
//        | l[b + 96] | l[b + 64] | l[b + 32] | l[b] |
//   scales: bytes 0..7, byte b    = | low 4 of s[b + 8] | low 4 of s[b] |
//           bytes 8..11, byte b+8 = | high 2 of s[b + 12] | of s[b + 8] | of s[b + 4] | of s[b] |
//
//   c[i] = h[i] * 4 + l[i],  value[i] = (d * (s[i / 16] - 32)) * (c[i] - 4)
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/scale_search.h"

namespace kvant::quant {

struct Q3_K {
  static constexpr TensorType kType{11};
  static constexpr const char* kName = "Q3_K";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;

  struct Block {
    uint8_t high[32];
    uint8_t low[64];
    uint8_t scales_low[8];
    uint8_t scales_high[4];
    PackedHalf d;
  };
  static_assert(sizeof(Block) == 110 && alignof(Block) == 1);
  using High = BitPlane<1, 32>;
  using Low = BitPlane<2, 32>;
  using ScalesLow = BitPlane<4, 8>;
  using ScalesHigh = BitPlane<2, 4>;

  static constexpr SuperblockShape kShape = {.group_values = 16,
                                             .codes = {-4, 3},
                                             .scales = {-32, 31},
                                             .offset_max = 0,
                                             .magnitude = Magnitude::kCounts};

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = High::Get(block.high, i) << 2 | Low::Get(block.low, i);
      out.codes[i] = static_cast<int8_t>(code - 4);
    }
    const float d = block.d.value();
    for (int group = 0; group < 16; ++group) {
      const int scale =
          ScalesHigh::Get(block.scales_high, group) << 4 | ScalesLow::Get(block.scales_low, group);
      SetScale(out, 16 * group, 16, d * static_cast<float>(scale - 32));
    }
  }

  static void Pack(const SuperblockFit& fit, Block& block) {
    block.d = fit.d;
    ScalesLow::PutAll(block.scales_low, fit.scales, 16, 32, 0);
    ScalesHigh::PutAll(block.scales_high, fit.scales, 16, 32, 4);
    Low::PutAll(block.low, fit.codes, kBlockValues, 4, 0);
    High::PutAll(block.high, fit.codes, kBlockValues, 4, 2);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitBlock(values, importance, kShape), block);
  }
};

}  // namespace kvant::quant
