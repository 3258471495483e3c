// Q6_K: 256 values as 6-bit codes; each 16 have a signed 8-bit scale in units of the block's d.
// 210 bytes, 6.5625 bits per value.
//
//   byte   0         127   128       191   192            207   208   209
//        | low bits l    | high bits h   | s0 | s1 ... | s15  | d (f16) |
//                                          two's complement
//
//   l: two runs of 64 bytes for 128 values each; byte b of a run = | l[b + 64] | l[b] |
//   h: two runs of 32 bytes for 128 values each; byte b of a run, bits 7..0:
//        | h[b + 96] | h[b + 64] | h[b + 32] | h[b] |
//
//   c[i] = h[i] * 16 + l[i],  value[i] = (d * s[i / 16]) * (c[i] - 32)
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/scale_search.h"

namespace kvant::quant {

struct Q6_K {
  static constexpr TensorType kType{14};
  static constexpr const char* kName = "Q6_K";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;

  struct Block {
    uint8_t low[128];
    uint8_t high[64];
    int8_t scales[16];
    PackedHalf d;
  };
  static_assert(sizeof(Block) == 210 && alignof(Block) == 1);
  using Low = BitPlane<4, 64>;
  using High = BitPlane<2, 32>;

  static constexpr SuperblockShape kShape = {
      .group_values = 16, .codes = {-32, 31}, .scales = {-128, 127}, .offset_max = 0};

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = High::Get(block.high, i) << 4 | Low::Get(block.low, i);
      out.codes[i] = static_cast<int8_t>(code - 32);
    }
    const float d = block.d.value();
    for (int group = 0; group < 16; ++group) {
      SetScale(out, 16 * group, 16, d * static_cast<float>(block.scales[group]));
    }
  }

  static void Pack(const SuperblockFit& fit, Block& block) {
    block.d = fit.d;
    for (int group = 0; group < 16; ++group) block.scales[group] = fit.scales[group];
    Low::PutAll(block.low, fit.codes, kBlockValues, 32, 0);
    High::PutAll(block.high, fit.codes, kBlockValues, 32, 4);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitBlock(values, importance, kShape), block);
  }
};

}  // namespace kvant::quant
