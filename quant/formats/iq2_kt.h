// IQ2_KT: 256 values in groups of 8, each a 16-bit index (quant/formats/trellis.h); each 32 values
// have a 4-bit scale. 68 bytes, 2.125 bits per value, and 4 bytes for each row. Of ik_llama.cpp.
//
//   row:   | d (f32) | blocks |
//   byte   0                          3   4            67
//        | s[b + 4] : s[b], 4 bits each | indices, u16 |
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

struct IQ2_KT {
  static constexpr TensorType kType{153};
  static constexpr const char* kName = "IQ2_KT";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr bool kNeedsImportance = true;
  static constexpr int kPoint = 8;

  using Head = FloatHead;
  struct Block {
    uint8_t scales[4];
    PackedU16 indices[32];
  };
  static_assert(sizeof(Block) == 68 && alignof(Block) == 1);
  using Scales = BitPlane<4, 4>;

  static float Factor(const Head& head) { return head.value(); }

  static int Scale(const Block& block, int group) {
    return kIq4Levels[Scales::Get(block.scales, group)];
  }

  static uint32_t Index(const Block& block, int g) { return block.indices[g].value(); }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    TrellisToIntegers<IQ2_KT, 8>(block, out);
  }

  static void Pack(const TrellisFit& fit, Block& block) {
    for (int group = 0; group < 8; ++group) Scales::Put(block.scales, group, fit.scales[group]);
    for (int g = 0; g < 32; ++g) block.indices[g].Set(fit.indices[g]);
  }

  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    PackRow<IQ2_KT>(FitIq2Kt(values, importance, count), row);
  }
};

}  // namespace kvant::quant
