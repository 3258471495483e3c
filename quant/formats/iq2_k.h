// IQ2_K: 256 values as 2-bit codes that stand for 4 unequally spaced levels; each 16 have a 4-bit
// scale in units of the block's d and a bit that shifts their levels. 76 bytes, 2.375 bits per
// value. Of ik_llama.cpp.
//
//   byte   0    1    2                3   4                   11   12                75
//        | d (f16) | shifted: bit per 16 | s[2b + 1] : s[2b]     | codes, 2 bits each |
//
//   codes: two runs of 32 bytes for 128 values each; byte b of a run, bits 7..0:
//        | c[b + 96] | c[b + 64] | c[b + 32] | c[b] |
//
//   value[i] = (d * (s[i / 16] - 8)) * (level(c[i]) + 5 * shifted[i / 16])
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/packed_word.h"
#include "quant/search/shifted_fit.h"

namespace kvant::quant {

struct IQ2_K {
  static constexpr TensorType kType{137};
  static constexpr const char* kName = "IQ2_K";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr const auto& kLevels = kShiftedLevels2;

  struct Block {
    PackedHalf d;
    PackedU16 shifted;
    uint8_t scales[8];
    uint8_t low[64];
  };
  static_assert(sizeof(Block) == 76 && alignof(Block) == 1);
  using Scales = BitPlane<4, 1>;
  using Low = BitPlane<2, 32>;

  static int Scale(const Block& block, int group) { return Scales::Get(block.scales, group) - 8; }

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
      Scales::Put(block.scales, group, fit.scales[group] + 8);
    }
    block.shifted.Set(shifted);
    Low::PutAll(block.low, fit.codes, kBlockValues, 0, 0);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq2K(values, importance), block);
  }
};

}  // namespace kvant::quant
