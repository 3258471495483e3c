// IQ2_KL: 256 values as 128 pairs, 5-bit numbers of 32 points of a plane of levels; each 32 values
// have a 6-bit scale in units of the row's d. 86 bytes, 2.6875 bits per value, and 2 bytes for each
// row. Of ik_llama.cpp.
//
//   row:   | d (f16) | blocks |
//   byte   0                 1   2                     5   6                 69   70 85
//        | high 2 of s7 .. s0   | low 4 of s[b + 4] : s[b] | low 4 bits of pairs | high bit of
//        pairs |
//
//   low: four runs of 16 bytes for 32 pairs each; byte b of a run = | p[b + 16] | p[b] |
//   high: bit k of byte b belongs to pair 16 k + b
//
//   value[2k + j] = (d * (s[k / 16] - 32)) * point(p[k])[j]
#pragma once

#include <algorithm>

#include "quant/block.h"
#include "quant/format.h"
#include "quant/packed_word.h"
#include "quant/search/shifted_fit.h"

namespace kvant::quant {

struct IQ2_KL {
  static constexpr TensorType kType{157};
  static constexpr const char* kName = "IQ2_KL";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;

  using Head = HalfHead;
  struct Block {
    PackedU16 scales_high;
    uint8_t scales_low[4];
    uint8_t low[64];
    uint8_t high[16];
  };
  static_assert(sizeof(Block) == 86 && alignof(Block) == 1);
  using ScalesLow = BitPlane<4, 4>;
  using Low = BitPlane<4, 16>;
  using High = BitPlane<1, 16>;

  static float Factor(const Head& head) { return head.value(); }

  static int Scale(const Block& block, int group) {
    const int high = static_cast<int>(block.scales_high.value() >> (2 * group) & 3);
    return (high << 4 | ScalesLow::Get(block.scales_low, group)) - 32;
  }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      const int pair = High::Get(block.high, i / 2) << 4 | Low::Get(block.low, i / 2);
      out.codes[i] = kLevelPairs[pair][i % 2];
    }
    for (int group = 0; group < 8; ++group) {
      SetScale(out, 32 * group, 32, static_cast<float>(Scale(block, group)));
    }
  }

  // The numbers of a group's 16 pairs come first among its 32 codes.
  static void Pack(const ShiftedFit& fit, Block& block) {
    uint8_t pairs[128];
    uint32_t high = 0;
    for (int group = 0; group < 8; ++group) {
      const int scale = fit.scales[group] + 32;
      ScalesLow::Put(block.scales_low, group, scale);
      high |= static_cast<uint32_t>(scale >> 4) << (2 * group);
      std::copy_n(fit.codes + 32 * group, 16, pairs + 16 * group);
    }
    Low::PutAll(block.low, pairs, 128, 0, 0);
    High::PutAll(block.high, pairs, 128, 0, 4);
    block.scales_high.Set(high);
  }

  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    PackRow<IQ2_KL>(FitIq2Kl(values, importance, count), row);
  }
};

}  // namespace kvant::quant
