// IQ2_KS: 256 values as 2-bit codes that stand for 4 unequally spaced levels; each 32 have a 5-bit
// scale in units of the row's d and a bit that shifts their levels. 70 bytes, 2.1875 bits per
// value, and 2 bytes for each row. Of ik_llama.cpp.
//
//   row:   | d (f16) | blocks |
//   byte   0                     1   2                 5   6                 69
//        | high bits of s7 .. s0, | low 4 of s[2b + 1] : | codes, 2 bits each |
//        | shifted: bit per 32    | s[2b]
//
//   codes: two runs of 32 bytes for 128 values each; byte b of a run, bits 7..0:
//        | c[b + 96] | c[b + 64] | c[b + 32] | c[b] |
//
//   value[i] = (d * (s[i / 32] - 16)) * (level(c[i]) + 5 * shifted[i / 32])
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/packed_word.h"
#include "quant/search/shifted_fit.h"

namespace kvant::quant {

struct IQ2_KS {
  static constexpr TensorType kType{145};
  static constexpr const char* kName = "IQ2_KS";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr const auto& kLevels = kShiftedLevels2;

  using Head = HalfHead;
  struct Block {
    PackedU16 bits;
    uint8_t scales[4];
    uint8_t low[64];
  };
  static_assert(sizeof(Head) == 2);
  static_assert(sizeof(Block) == 70 && alignof(Block) == 1);
  using Scales = BitPlane<4, 1>;
  using Low = BitPlane<2, 32>;

  static float Factor(const Head& head) { return head.value(); }

  static int Scale(const Block& block, int group) {
    const int high = static_cast<int>(block.bits.value() >> (8 + group) & 1);
    return (high << 4 | Scales::Get(block.scales, group)) - 16;
  }

  static uint32_t Shifted(const Block& block, int group) { return block.bits.value() >> group & 1; }

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
    uint32_t bits = 0;
    for (int group = 0; group < 8; ++group) {
      const int scale = fit.scales[group] + 16;
      Scales::Put(block.scales, group, scale);
      bits |= uint32_t{fit.shifted[group]} << group | static_cast<uint32_t>(scale >> 4)
                                                          << (8 + group);
    }
    block.bits.Set(bits);
    Low::PutAll(block.low, fit.codes, kBlockValues, 0, 0);
  }

  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    PackRow<IQ2_KS>(FitIq2Ks(values, importance, count), row);
  }
};

}  // namespace kvant::quant
