// IQ4_KS: 256 values as 4-bit codes that stand for 16 unequally spaced levels; each 32 have an odd
// 8-bit scale in units of the row's d and a bit that shifts their levels. 136 bytes, 4.25 bits per
// value, and 4 bytes for each row. Of ik_llama.cpp.
//
//   row:   | d (f32) | blocks |
//   byte   0           7   8                 135
//        | s0 .. s7      | codes, 4 bits each  |      s = scale + 127, bit 0: shifted
//
//   codes: eight runs of 16 bytes for 32 values each; byte b of a run = | c[b + 16] | c[b] |
//
//   value[i] = (d * ((s[i / 32] & 254) - 127)) * (level(c[i]) + 4 * (s[i / 32] & 1))
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/packed_word.h"
#include "quant/search/shifted_fit.h"

namespace kvant::quant {

struct IQ4_KS {
  static constexpr TensorType kType{144};
  static constexpr const char* kName = "IQ4_KS";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr const auto& kLevels = kShiftedLevels4;

  using Head = FloatHead;
  struct Block {
    uint8_t scales[8];
    uint8_t low[128];
  };
  static_assert(sizeof(Head) == 4);
  static_assert(sizeof(Block) == 136 && alignof(Block) == 1);
  using Low = BitPlane<4, 16>;

  static float Factor(const Head& head) { return head.value(); }

  // Odd; the lowest bit of the byte is not its own.
  static int Scale(const Block& block, int group) { return (block.scales[group] & 254) - 127; }

  static uint32_t Shifted(const Block& block, int group) { return block.scales[group] & 1u; }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = Low::Get(block.low, i);
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
  }

  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    PackRow<IQ4_KS>(FitIq4Ks(values, importance, count), row);
  }
};

}  // namespace kvant::quant
