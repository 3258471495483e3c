// TQ1_0: 256 ternary values, five to a byte, with one scale. 54 bytes, 1.6875 bits per value.
//
//   byte   0                31   32               47   48              51   52   53
//        | 5 digits: 0..159    | 5 digits: 160..239  | 4 digits: 240..255 | d (f16) |
//
//   A byte b of digits t[0] .. t[4] (0, 1, 2) is the fraction 0.t[0] t[1] t[2] t[3] t[4] in base 3,
//   times 256 and rounded up, so t[n] = (b * 3^n mod 256) * 3 / 256. Digit n of byte b belongs to
//   value 32 n + b of the first 160, 16 n + b of the next 80 and 4 n + b of the last 16.
//
//   value[i] = d * (t[i] - 1)
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/level_fit.h"

namespace kvant::quant {

struct TQ1_0 {
  static constexpr TensorType kType{34};
  static constexpr const char* kName = "TQ1_0";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;

  struct Block {
    uint8_t digits[52];
    PackedHalf d;
  };
  static_assert(sizeof(Block) == 54 && alignof(Block) == 1);

  // Bytes [byte, byte + run) hold the digits of values [value, value + run * digits).
  struct Part {
    int byte, value, run, digits;
  };
  static constexpr Part kParts[] = {{0, 0, 32, 5}, {32, 160, 16, 5}, {48, 240, 4, 4}};

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (const Part& part : kParts) {
      for (int b = 0; b < part.run; ++b) {
        int fraction = block.digits[part.byte + b];
        for (int n = 0; n < part.digits; ++n) {
          out.codes[part.value + n * part.run + b] = static_cast<int8_t>((fraction * 3 >> 8) - 1);
          fraction = fraction * 3 & 255;
        }
      }
    }
    SetScale(out, 0, kBlockValues, block.d.value());
  }

  static void Pack(const LevelFit& fit, Block& block) {
    block.d = fit.d;
    for (const Part& part : kParts) {
      for (int b = 0; b < part.run; ++b) {
        int number = 0;
        for (int n = 0; n < 5; ++n) {
          number = 3 * number + (n < part.digits ? fit.codes[part.value + n * part.run + b] : 0);
        }
        block.digits[part.byte + b] = static_cast<uint8_t>((number * 256 + 242) / 243);
      }
    }
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitTernary(values, importance), block);
  }
};

}  // namespace kvant::quant
