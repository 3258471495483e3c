// IQ2_BN: 64 ternary values of 2 bits; the row has one scale. 16 bytes, 2 bits per value, and 4
// bytes for each row. Of ik_llama.cpp, for BitNet.
//
//   row:   | d (f32) | blocks |
//   byte b of a block, bits 7..0: | c[b + 48] | c[b + 32] | c[b + 16] | c[b] |
//
//   value[i] = d * (c[i] - 1)
//
// ik_llama.cpp's conversion to floats leaves out d, its products do not.
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/row_head.h"
#include "quant/search/ternary_row.h"

namespace kvant::quant {

struct IQ2_BN {
  static constexpr TensorType kType{135};
  static constexpr const char* kName = "IQ2_BN";
  static constexpr int kBlockValues = 64;
  static constexpr bool kHasOffsets = false;

  using Head = FloatHead;
  struct Block {
    uint8_t codes[16];
  };
  static_assert(sizeof(Block) == 16 && alignof(Block) == 1);
  using Codes = BitPlane<2, 16>;

  static float Factor(const Head& head) { return head.value(); }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      out.codes[i] = static_cast<int8_t>(Codes::Get(block.codes, i) - 1);
    }
    SetScale(out, 0, kBlockValues, 1.0f);
  }

  static void Pack(const uint8_t* codes, Block& block) {
    for (int i = 0; i < kBlockValues; ++i) Codes::Put(block.codes, i, codes[i]);
  }

  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    EncodeTernaryRow<IQ2_BN>(values, importance, row, count);
  }
};

}  // namespace kvant::quant
