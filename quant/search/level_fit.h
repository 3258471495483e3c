// Finds scales and codes for formats whose codes stand for a few unequally spaced numbers, the
// levels: IQ4_NL, IQ4_XS, MXFP4, NVFP4, and the ternary formats. The fit minimises
// sum_i w_i (x_i - decode_i)^2 under the rules of quant/search/scale_search.h for weights, for
// values that are not finite, and for very small ones.
//
// Thread-safety: pure functions. Results are the same whatever the width of the machine's vectors.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/format.h"

namespace kvant::quant {

// IQ4: what a code stands for. Source: kvalues_iq4nl of ggml-common.h.
inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// MXFP4, NVFP4: E2M1 doubled, so that codes are integers; bit 3 is the sign. Source: OCP
// Microscaling Formats, version 1.0.
inline constexpr int8_t kE2M1Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// value[i] = d * levels[codes[i]]
struct LevelFit {
  PackedHalf d;
  uint8_t codes[kBlockValuesMax];
};
LevelFit FitIq4Nl(const float* values, const float* importance);
LevelFit FitTernary(const float* values, const float* importance);       // levels -1, 0, 1
LevelFit FitTernaryUpTo2(const float* values, const float* importance);  // levels -1, 0, 1, 2
// Fits 64 values to the levels -1, 0, 1, 2.
LevelFit FitTernaryUpTo2Of64(const float* values, const float* importance);
LevelFit FitSigns(const float* values, const float* importance);  // levels -1, 1 of 128 values

// value[i] = (d * scales[i / 32]) * kIq4Levels[codes[i]], scales -32 .. 31
struct Iq4XsFit {
  PackedHalf d;
  int8_t scales[8];
  uint8_t codes[256];
};
Iq4XsFit FitIq4Xs(const float* values, const float* importance);

// value[i] = 2^(scale - 128) * kE2M1Levels[codes[i]] for 32 values
struct Mxfp4Fit {
  uint8_t scale;
  uint8_t codes[32];
};
Mxfp4Fit FitMxfp4(const float* values, const float* importance);

// value[i] = HalfOfUe4M3(scales[i / 16]) * kE2M1Levels[codes[i]] for 64 values
struct Nvfp4Fit {
  uint8_t scales[4];
  uint8_t codes[64];
};
Nvfp4Fit FitNvfp4(const float* values, const float* importance);

// Half of an unsigned float of 4 exponent and 3 mantissa bits with bias 7, since the levels are
// doubled. Bit 7 is ignored, except that 0x7f, the standard's NaN, is 0 and 0xff is 240.
float HalfOfUe4M3(uint8_t bits);

}  // namespace kvant::quant
