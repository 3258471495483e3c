// IQ6_K: 256 values as 6-bit codes that stand for 64 unequally spaced levels; each 16 have an 8-bit
// scale in units of the block's d and a bit that shifts their levels. 212 bytes, 6.625 bits per
// value. Of ik_llama.cpp.
//
//   byte   0    1    2                3   4           19   20               147   148 211
//        | d (f16) | shifted: bit per 16 | s0 .. s15     | low 4 bits of codes  | high 2 of codes |
//
//   low: four runs of 32 bytes for 64 values each; byte b of a run = | c[b + 32] | c[b] |
//   high: two runs of 32 bytes for 128 values each; byte b of a run, bits 7..0:
//        | c[b + 96] | c[b + 64] | c[b + 32] | c[b] |
//
//   value[i] = (d * s[i / 16]) * (level(c[i]) + shifted[i / 16])
//
// The levels are those that ik_llama.cpp multiplies with; its conversion to floats has a cubic
// polynomial instead, from which they differ by at most half a unit.
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/packed_word.h"
#include "quant/search/shifted_fit.h"

namespace kvant::quant {

struct IQ6_K {
  static constexpr TensorType kType{141};
  static constexpr const char* kName = "IQ6_K";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr const auto& kLevels = kShiftedLevels6;

  struct Block {
    PackedHalf d;
    PackedU16 shifted;
    int8_t scales[16];
    uint8_t low[128];
    uint8_t high[64];
  };
  static_assert(sizeof(Block) == 212 && alignof(Block) == 1);
  using Low = BitPlane<4, 32>;
  using High = BitPlane<2, 32>;

  static int Scale(const Block& block, int group) { return block.scales[group]; }

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
      block.scales[group] = static_cast<int8_t>(fit.scales[group]);
    }
    block.shifted.Set(shifted);
    Low::PutAll(block.low, fit.codes, kBlockValues, 0, 0);
    High::PutAll(block.high, fit.codes, kBlockValues, 0, 4);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq6K(values, importance), block);
  }
};

}  // namespace kvant::quant
