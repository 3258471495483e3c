// IQ3_KS: 256 values as 3-bit codes that stand for 8 unequally spaced levels; each 32 have a 5-bit
// scale in units of the row's d and a bit that shifts their levels. 102 bytes, 3.1875 bits per
// value, and 2 bytes for each row. Of ik_llama.cpp.
//
//   row:   | d (f16) | blocks |
//   byte   0                     1   2                 5   6                  69   70 101
//        | shifted: bit per 32,   | low 4 of s[b + 4] : | low 2 bits of codes   | high bit of codes
//        | | high bits of s7 .. s0  | s[b]
//
//   low: two runs of 32 bytes for 128 values each; byte b of a run, bits 7..0:
//        | c[b + 96] | c[b + 64] | c[b + 32] | c[b] |
//   high: bit k of byte b belongs to value 32 k + b
//
//   value[i] = (d * (s[i / 32] - 16)) * (level(c[i]) + 4 * shifted[i / 32])
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/packed_word.h"
#include "quant/search/shifted_fit.h"

namespace kvant::quant {

struct IQ3_KS {
  static constexpr TensorType kType{156};
  static constexpr const char* kName = "IQ3_KS";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr const auto& kLevels = kShiftedLevels3;

  using Head = HalfHead;
  struct Block {
    PackedU16 bits;
    uint8_t scales[4];
    uint8_t low[64];
    uint8_t high[32];
  };
  static_assert(sizeof(Head) == 2);
  static_assert(sizeof(Block) == 102 && alignof(Block) == 1);
  using Scales = BitPlane<4, 4>;
  using Low = BitPlane<2, 32>;
  using High = BitPlane<1, 32>;

  static float Factor(const Head& head) { return head.value(); }

  static int Scale(const Block& block, int group) {
    const int high = static_cast<int>(block.bits.value() >> group & 1);
    return (high << 4 | Scales::Get(block.scales, group)) - 16;
  }

  static uint32_t Shifted(const Block& block, int group) {
    return block.bits.value() >> (8 + group) & 1;
  }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = High::Get(block.high, i) << 2 | Low::Get(block.low, i);
      out.codes[i] = kLevels.Get(code, Shifted(block, i / 32));
    }
    for (int group = 0; group < 8; ++group) {
      SetScale(out, 32 * group, 32, static_cast<float>(Scale(block, group)));
    }
  }

  static void Pack(const ShiftedFit& fit, Block& block) {
    uint32_t bits = 0;
    for (int group = 0; group < 8; ++group) {
      const int scale = fit.scales[group] + 16;
      Scales::Put(block.scales, group, scale);
      bits |= static_cast<uint32_t>(scale >> 4) << group | uint32_t{fit.shifted[group]}
                                                               << (8 + group);
    }
    block.bits.Set(bits);
    Low::PutAll(block.low, fit.codes, kBlockValues, 0, 0);
    High::PutAll(block.high, fit.codes, kBlockValues, 0, 2);
  }

  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    PackRow<IQ3_KS>(FitIq3Ks(values, importance, count), row);
  }
};

}  // namespace kvant::quant
