// IQ3_K: 256 values as 3-bit codes that stand for 8 unequally spaced levels; each 16 have an odd
// scale of 4 bits and a sign in units of the block's d and a bit that shifts their levels. 110
// bytes, 3.4375 bits per value. Of ik_llama.cpp.
//
//   byte   0    1    2                3   4                 5   6                 13
//        | d (f16) | shifted: bit per 16 | minus: bit per 16   | s[2b + 1] : s[2b]  |
//   byte   14                 77   78                 109
//        | low 2 bits of codes   | high bit of codes     |
//
//   low: two runs of 32 bytes for 128 values each; byte b of a run, bits 7..0:
//        | c[b + 96] | c[b + 64] | c[b + 32] | c[b] |
//   high: bit k of byte b belongs to value 32 k + b
//
//   value[i] = (d * (+-(2 * s[i / 16] + 1))) * (level(c[i]) + 4 * shifted[i / 16])
#pragma once

#include <cstdlib>

#include "quant/block.h"
#include "quant/format.h"
#include "quant/packed_word.h"
#include "quant/search/shifted_fit.h"

namespace kvant::quant {

struct IQ3_K {
  static constexpr TensorType kType{138};
  static constexpr const char* kName = "IQ3_K";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr const auto& kLevels = kShiftedLevels3;

  struct Block {
    PackedHalf d;
    PackedU16 shifted;
    PackedU16 minus;
    uint8_t scales[8];
    uint8_t low[64];
    uint8_t high[32];
  };
  static_assert(sizeof(Block) == 110 && alignof(Block) == 1);
  using Scales = BitPlane<4, 1>;
  using Low = BitPlane<2, 32>;
  using High = BitPlane<1, 32>;

  static int Scale(const Block& block, int group) {
    const int magnitude = 2 * Scales::Get(block.scales, group) + 1;
    return (block.minus.value() >> group & 1) != 0 ? -magnitude : magnitude;
  }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    const uint32_t shifted = block.shifted.value();
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = High::Get(block.high, i) << 2 | Low::Get(block.low, i);
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
    uint32_t minus = 0;
    for (int group = 0; group < 16; ++group) {
      shifted |= uint32_t{fit.shifted[group]} << group;
      minus |= uint32_t{fit.scales[group] < 0} << group;
      Scales::Put(block.scales, group, (std::abs(fit.scales[group]) - 1) / 2);
    }
    block.shifted.Set(shifted);
    block.minus.Set(minus);
    Low::PutAll(block.low, fit.codes, kBlockValues, 0, 0);
    High::PutAll(block.high, fit.codes, kBlockValues, 0, 2);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitIq3K(values, importance), block);
  }
};

}  // namespace kvant::quant
