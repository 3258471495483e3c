// IQ1_KT: 256 values in groups of 8, each a 13-bit index (quant/formats/trellis.h); each 32 values
// have a 4-bit scale. 56 bytes, 1.75 bits per value, and 4 bytes for each row. Of ik_llama.cpp.
//
//   row:   | d (f32) | blocks |
//   byte   0                                      7   8               39   40           55
//        | high bits of the indices of 4 groups, s | low 8 of indices    | next 4 of indices |
//
//   scales: byte b = | high bit of index 4 b + 3 | .. | of index 4 b | s[b], 4 bits |
//   middle: byte b = | of index b + 16 | of index b |
//
//   value[i] = (d * level(s[i / 32])) * number(index[i / 8], i % 8), level: kIq4Levels
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/formats/trellis.h"
#include "quant/packed_word.h"
#include "quant/row_head.h"
#include "quant/search/level_fit.h"

namespace kvant::quant {

struct IQ1_KT {
  static constexpr TensorType kType{158};
  static constexpr const char* kName = "IQ1_KT";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr bool kNeedsImportance = true;
  static constexpr int kPoint = 8;

  using Head = FloatHead;
  struct Block {
    uint8_t scales[8];
    uint8_t low[32];
    uint8_t middle[16];
  };
  static_assert(sizeof(Block) == 56 && alignof(Block) == 1);
  using Middle = BitPlane<4, 16>;

  static float Factor(const Head& head) { return head.value(); }

  static int Scale(const Block& block, int group) { return kIq4Levels[block.scales[group] & 15]; }

  static uint32_t Index(const Block& block, int g) {
    const int high = block.scales[g / 4] >> (4 + g % 4) & 1;
    return static_cast<uint32_t>(high << 12 | Middle::Get(block.middle, g) << 8 | block.low[g]);
  }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    TrellisToIntegers<IQ1_KT, 8>(block, out);
  }

  static void Pack(const TrellisFit& fit, Block& block) {
    for (int group = 0; group < 8; ++group)
      block.scales[group] = static_cast<uint8_t>(fit.scales[group]);
    for (int g = 0; g < 32; ++g) {
      const int index = fit.indices[g];
      block.low[g] = static_cast<uint8_t>(index);
      Middle::Put(block.middle, g, index >> 8);
      block.scales[g / 4] |= static_cast<uint8_t>((index >> 12) << (4 + g % 4));
    }
  }

  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    PackRow<IQ1_KT>(FitIq1Kt(values, importance, count), row);
  }
};

}  // namespace kvant::quant
