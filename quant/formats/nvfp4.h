// NVFP4: 64 values as 4-bit floats (E2M1); each 16 have an unsigned 8-bit float (E4M3) as their
// scale. 36 bytes, 4.5 bits per value.
//
//   byte   0              3   4                      35
//        | s0 | s1 | s2 | s3 | codes, 4 bits each      |
//
//   codes: four runs of 8 bytes for 16 values each; byte b of a run = | c[b + 8] | c[b] |
//
//   value[i] = ue4m3(s[i / 16]) * e2m1(c[i])
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/search/level_fit.h"

namespace kvant::quant {

struct NVFP4 {
  static constexpr TensorType kType{40};
  static constexpr const char* kName = "NVFP4";
  static constexpr int kBlockValues = 64;
  static constexpr bool kHasOffsets = false;

  struct Block {
    uint8_t scales[4];
    uint8_t codes[32];
  };
  static_assert(sizeof(Block) == 36 && alignof(Block) == 1);
  using Codes = BitPlane<4, 8>;

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      out.codes[i] = kE2M1Levels[Codes::Get(block.codes, i)];
    }
    for (int g = 0; g < 4; ++g) SetScale(out, 16 * g, 16, HalfOfUe4M3(block.scales[g]));
  }

  static void Pack(const Nvfp4Fit& fit, Block& block) {
    for (int g = 0; g < 4; ++g) block.scales[g] = fit.scales[g];
    Codes::PutAll(block.codes, fit.codes, kBlockValues, 0, 0);
  }

  static void Encode(const float* values, const float* importance, Block& block) {
    Pack(FitNvfp4(values, importance), block);
  }
};

}  // namespace kvant::quant
