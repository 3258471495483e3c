// IQ5_KS: 256 values as 5-bit codes that stand for 32 unequally spaced levels; each 32 have an odd
// 8-bit scale in units of the row's d and a bit that shifts their levels. 168 bytes, 5.25 bits per
// value, and 4 bytes for each row. Of ik_llama.cpp.
//
//   row:   | d (f32) | blocks |
//   byte   0           7   8                  135   136               167
//        | s0 .. s7      | low 4 bits of codes    | high bit of codes     |
//                                                   s = scale + 127, bit 0: shifted
//
//   low: four runs of 32 bytes for 64 values each; byte b of a run = | c[b + 32] | c[b] |
//   high: bit k of byte b belongs to value 32 k + b
//
//   value[i] = (d * ((s[i / 32] & 254) - 127)) * (level(c[i]) + 2 * (s[i / 32] & 1))
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/packed_word.h"
#include "quant/search/shifted_fit.h"

namespace kvant::quant {

struct IQ5_KS {
  static constexpr TensorType kType{152};
  static constexpr const char* kName = "IQ5_KS";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr const auto& kLevels = kShiftedLevels5;

  using Head = FloatHead;
  struct Block {
    uint8_t scales[8];
    uint8_t low[128];
    uint8_t high[32];
  };
  static_assert(sizeof(Head) == 4);
  static_assert(sizeof(Block) == 168 && alignof(Block) == 1);
  using Low = BitPlane<4, 32>;
  using High = BitPlane<1, 32>;

  static float Factor(const Head& head) { return head.value(); }

  // Odd; the lowest bit of the byte is not its own.
  static int Scale(const Block& block, int group) { return (block.scales[group] & 254) - 127; }

  static uint32_t Shifted(const Block& block, int group) { return block.scales[group] & 1u; }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = High::Get(block.high, i) << 4 | Low::Get(block.low, i);
      out.codes[i] = kLevels.Get(code, Shifted(block, i / 32));
    }
    for (int group = 0; group < 8; ++group) {
      SetScale(out, 32 * group, 32, static_cast<float>(Scale(block, group)));
    }
  }

  static void Pack(const ShiftedFit& fit, Block& block) {
    for (int group = 0; group < 8; ++group) {
      const int scale = fit.scales[group] + 127;
      block.scales[group] = static_cast<uint8_t>(scale | static_cast<int>(fit.shifted[group]));
    }
    Low::PutAll(block.low, fit.codes, kBlockValues, 0, 0);
    High::PutAll(block.high, fit.codes, kBlockValues, 0, 4);
  }

  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    PackRow<IQ5_KS>(FitIq5Ks(values, importance, count), row);
  }
};

}  // namespace kvant::quant
