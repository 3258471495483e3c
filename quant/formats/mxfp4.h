// MXFP4: 32 values as 4-bit floats (E2M1) with a power of two as their scale. 17 bytes, 4.25 bits
// per value.
//
//   byte   0   1              2                      16
//        | e | c16  :  c0  | c17  :  c1  |  ...  | c31  :  c15 |
//              bits 7..4 : 3..0
//
//   value[i] = 2^(e - 127) * e2m1(c[i]); e = 255, the standard's NaN, is 2^128 here. Blocks with
//   e >= 253 can hold infinities.
#pragma once

#include <cmath>

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/level_fit.h"

namespace kvant::quant {

struct MXFP4 {
  static constexpr TensorType kType{39};
  static constexpr const char* kName = "MXFP4";
  static constexpr int kBlockValues = 32;
  static constexpr bool kHasOffsets = false;

  struct Block {
    uint8_t exponent;
    uint8_t codes[16];
  };
  static_assert(sizeof(Block) == 17 && alignof(Block) == 1);
  using Codes = BitPlane<4, 16>;

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      out.codes[i] = kE2M1Levels[Codes::Get(block.codes, i)];
    }
    SetScale(out, 0, kBlockValues, std::ldexp(1.0f, block.exponent - 128));
  }

  static void Pack(const Mxfp4Fit& fit, Block& block) {
    block.exponent = fit.scale;
    Codes::PutAll(block.codes, fit.codes, kBlockValues, 0, 0);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitMxfp4(values, importance), block);
  }
};

}  // namespace kvant::quant
