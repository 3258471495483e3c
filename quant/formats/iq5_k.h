// IQ5_K: 256 values as 5-bit codes that stand for 32 unequally spaced levels; each 16 have a 6-bit
// scale in units of the block's d and a bit that shifts their levels. 176 bytes, 5.5 bits per
// value. Of ik_llama.cpp.
//
//   byte   0    1    2                3   4               7   8               15
//        | d (f16) | shifted: bit per 16 | high 2 of s[4b+3] | low 4 of s[2b+1] : |
//                                          .. s[4b]            s[2b]
//   byte   16                143   144               175
//        | low 4 bits of codes   | high bit of codes     |
//
//   low: four runs of 32 bytes for 64 values each; byte b of a run = | c[b + 32] | c[b] |
//   high: bit k of byte b belongs to value 32 k + b
//
//   value[i] = (d * (s[i / 16] - 32)) * (level(c[i]) + 2 * shifted[i / 16])
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/packed_word.h"
#include "quant/search/shifted_fit.h"

namespace kvant::quant {

struct IQ5_K {
  static constexpr TensorType kType{140};
  static constexpr const char* kName = "IQ5_K";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr const auto& kLevels = kShiftedLevels5;

  struct Block {
    PackedHalf d;
    PackedU16 shifted;
    uint8_t scales_high[4];
    uint8_t scales_low[8];
    uint8_t low[128];
    uint8_t high[32];
  };
  static_assert(sizeof(Block) == 176 && alignof(Block) == 1);
  using ScalesHigh = BitPlane<2, 1>;
  using ScalesLow = BitPlane<4, 1>;
  using Low = BitPlane<4, 32>;
  using High = BitPlane<1, 32>;

  static int Scale(const Block& block, int group) {
    const int high = ScalesHigh::Get(block.scales_high, group);
    return (high << 4 | ScalesLow::Get(block.scales_low, group)) - 32;
  }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    const uint32_t shifted = block.shifted.value();
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = High::Get(block.high, i) << 4 | Low::Get(block.low, i);
      out.codes[i] = kLevels.Get(code, shifted >> (i / 16) & 1);
    }
    const float d = block.d.value();
    for (int group = 0; group < 16; ++group) {
      SetScale(out, 16 * group, 16, d * static_cast<float>(Scale(block, group)));
    }
  }

  static void Pack(const ShiftedFit& fit, Block& block) {
    block.d = fit.d;
    uint32_t shifted = 0;
    for (int group = 0; group < 16; ++group) {
      shifted |= uint32_t{fit.shifted[group]} << group;
      ScalesLow::Put(block.scales_low, group, fit.scales[group] + 32);
      ScalesHigh::Put(block.scales_high, group, (fit.scales[group] + 32) >> 4);
    }
    block.shifted.Set(shifted);
    Low::PutAll(block.low, fit.codes, kBlockValues, 0, 0);
    High::PutAll(block.high, fit.codes, kBlockValues, 0, 4);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq5K(values, importance), block);
  }
};

}  // namespace kvant::quant
