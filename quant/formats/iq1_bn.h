// IQ1_BN: 64 ternary values, five to a byte; the row has one scale. 13 bytes, 1.625 bits per value,
// and 2 bytes for each row. Of ik_llama.cpp, for BitNet.
//
//   row:   | d (f16) | blocks |
//   byte   0 .. 2                  3 .. 5   6 .. 8   9 .. 11   12
//        | c0-c4, c5-c9, c10-c14 | 16 .. | 32 ..  | 48 ..   | c15, c31, c47, c63 |
//
//   A byte holds the digits c of a number in base 3, n = c[0] + 3 c[1] + 9 c[2] + 27 c[3] + 81
//   c[4], as n * 256 / 243, rounded up. Digit j is what 3^(4 - j) times the byte, without the upper
//   bits, has in the three thirds of 256.
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

struct IQ1_BN {
  static constexpr TensorType kType{134};
  static constexpr const char* kName = "IQ1_BN";
  static constexpr int kBlockValues = 64;
  static constexpr bool kHasOffsets = false;

  using Head = HalfHead;
  struct Block {
    uint8_t digits[13];
  };
  static_assert(sizeof(Block) == 13 && alignof(Block) == 1);

  static float Factor(const Head& head) { return head.value(); }

  // The byte of value i, and its digit there.
  static constexpr int Byte(int i) { return i % 16 == 15 ? 12 : i / 16 * 3 + i % 16 / 5; }
  static constexpr int Digit(int i) { return i % 16 == 15 ? i / 16 : i % 16 % 5; }

  static int Code(const Block& block, int i) {
    constexpr int kPowers[] = {81, 27, 9, 3, 1};
    const int rest = block.digits[Byte(i)] * kPowers[Digit(i)] & 255;
    return (rest + rest / 2) >> 7;
  }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      out.codes[i] = static_cast<int8_t>(Code(block, i) - 1);
    }
    SetScale(out, 0, kBlockValues, 1.0f);
  }

  static void Pack(const uint8_t* codes, Block& block) {
    constexpr int kPlaces[] = {1, 3, 9, 27, 81};
    int numbers[13] = {};
    for (int i = 0; i < kBlockValues; ++i) numbers[Byte(i)] += codes[i] * kPlaces[Digit(i)];
    for (int b = 0; b < 13; ++b) {
      block.digits[b] = static_cast<uint8_t>((256 * numbers[b] + 242) / 243);
    }
  }

  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    EncodeTernaryRow<IQ1_BN>(values, importance, row, count);
  }
};

}  // namespace kvant::quant
