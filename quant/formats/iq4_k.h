// IQ4_K: 256 values as 4-bit codes that stand for 16 unequally spaced levels; each 16 have a 6-bit
// scale in units of the block's d and a bit that shifts their levels. 144 bytes, 4.5 bits per
// value. Of ik_llama.cpp.
//
//   byte   0    1    2                3   4               7   8               15   16      143
//        | d (f16) | shifted: bit per 16 | high 2 of s[4b+3] | low 4 of s[2b+1] : | codes, 4   |
//                                          .. s[4b]            s[2b]                bits each
//
//   codes: eight runs of 16 bytes for 32 values each; byte b of a run = | c[b + 16] | c[b] |
//
//   value[i] = (d * (s[i / 16] - 32)) * (level(c[i]) + 4 * shifted[i / 16])
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/packed_word.h"
#include "quant/search/shifted_fit.h"

namespace kvant::quant {

struct IQ4_K {
  static constexpr TensorType kType{139};
  static constexpr const char* kName = "IQ4_K";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr const auto& kLevels = kShiftedLevels4;

  struct Block {
    PackedHalf d;
    PackedU16 shifted;
    uint8_t scales_high[4];
    uint8_t scales_low[8];
    uint8_t low[128];
  };
  static_assert(sizeof(Block) == 144 && alignof(Block) == 1);
  using ScalesHigh = BitPlane<2, 1>;
  using ScalesLow = BitPlane<4, 1>;
  using Low = BitPlane<4, 16>;

  static int Scale(const Block& block, int group) {
    const int high = ScalesHigh::Get(block.scales_high, group);
    return (high << 4 | ScalesLow::Get(block.scales_low, group)) - 32;
  }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    const uint32_t shifted = block.shifted.value();
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = Low::Get(block.low, i);
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
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq4K(values, importance), block);
  }
};

}  // namespace kvant::quant
