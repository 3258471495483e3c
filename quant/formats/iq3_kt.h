// IQ3_KT: 256 values in groups of 8, each a 16-bit index for the magnitudes
// (quant/formats/trellis.h) and 8 signs; each 32 values have a 4-bit scale. 100 bytes, 3.125 bits
// per value, and 4 bytes for each row. Of ik_llama.cpp.
//
//   row:   | d (f32) | blocks |
//   byte   0                          3   4            67   68          99
//        | s[b + 4] : s[b], 4 bits each | indices, u16    | signs, a bit each |
//
//   signs: bit k of byte b belongs to value 32 k + b, set below zero
//
//   value[i] = (d * s[i / 32]) * +-|number(index[i / 8], i % 8)|
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/formats/trellis.h"
#include "quant/packed_word.h"
#include "quant/row_head.h"

namespace kvant::quant {

struct IQ3_KT {
  static constexpr TensorType kType{154};
  static constexpr const char* kName = "IQ3_KT";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr int kPoint = 8;

  using Head = FloatHead;
  struct Block {
    uint8_t scales[4];
    PackedU16 indices[32];
    uint8_t signs[32];
  };
  static_assert(sizeof(Block) == 100 && alignof(Block) == 1);
  using Scales = BitPlane<4, 4>;
  using Signs = BitPlane<1, 32>;

  static float Factor(const Head& head) { return head.value(); }

  static int Scale(const Block& block, int group) { return Scales::Get(block.scales, group); }

  static uint32_t Index(const Block& block, int g) { return block.indices[g].value(); }

  static bool Negative(const Block& block, int i) { return Signs::Get(block.signs, i) != 0; }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    TrellisToIntegers<IQ3_KT, 8>(block, out);
  }

  static void Pack(const TrellisFit& fit, Block& block) {
    for (int group = 0; group < 8; ++group) Scales::Put(block.scales, group, fit.scales[group]);
    for (int g = 0; g < 32; ++g) block.indices[g].Set(fit.indices[g]);
    for (int i = 0; i < kBlockValues; ++i) {
      Signs::Put(block.signs, i, static_cast<int>(fit.negative[i / 32] >> (i % 32) & 1));
    }
  }

  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    PackRow<IQ3_KT>(FitIq3Kt(values, importance, count), row);
  }
};

}  // namespace kvant::quant
