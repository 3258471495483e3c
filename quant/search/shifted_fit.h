// Finds scales and codes for ik_llama.cpp's formats of shifted levels: a code stands for one of a
// few unequally spaced levels, and one bit for each group of values says whether all of its levels
// are greater by a constant. The fit minimises sum_i w_i (x_i - decode_i)^2 under the rules of
// quant/search/scale_search.h for weights, for values that are not finite, and for very small ones.
//
// Thread-safety: pure functions. Results are the same whatever the width of the machine's vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "quant/block.h"
#include "quant/format.h"
#include "quant/packed_word.h"
#include "quant/row_head.h"

namespace kvant::quant {

// Ascending levels, and the shift that is added to the levels of a shifted group. Source:
// iq2nl_values to iq6nl_values of ik_llama.cpp's ggml-common.h, whose second halves are the first
// ones plus `shift`.
template <int kCountOfLevels>
struct ShiftedLevels {
  static constexpr int kCount = kCountOfLevels;
  int8_t levels[kCountOfLevels];
  int shift;

  // shifted: 1, or 0.
  constexpr int8_t Get(int code, uint32_t shifted) const {
    return static_cast<int8_t>(levels[code] + static_cast<int>(shifted) * shift);
  }
};

inline constexpr ShiftedLevels<4> kShiftedLevels2 = {{-31, -13, 1, 17}, 5};
inline constexpr ShiftedLevels<8> kShiftedLevels3 = {{-63, -40, -23, -10, 1, 13, 28, 47}, 4};
inline constexpr ShiftedLevels<16> kShiftedLevels4 = {
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}, 4};
inline constexpr ShiftedLevels<32> kShiftedLevels5 = {
    {-126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6,
     -1,   5,    11,   17,  23,  29,  36,  43,  51,  59,  68,  77,  87,  97,  109, 121},
    2};
inline constexpr ShiftedLevels<64> kShiftedLevels6 = {
    {-127, -121, -115, -109, -104, -98, -93, -88, -84, -79, -74, -70, -66, -62, -58, -54,
     -51,  -47,  -44,  -40,  -37,  -34, -31, -28, -25, -22, -19, -16, -13, -11, -8,  -5,
     -2,   0,    3,    6,    9,    12,  14,  17,  20,  23,  27,  30,  33,  36,  40,  44,
     47,   51,   55,   59,   63,   68,  72,  77,  82,  87,  92,  98,  103, 109, 115, 121},
    1};

// IQ2_KL: the two levels that a number stands for. Source: iq2kl_values there.
inline constexpr int8_t kLevelPairs[32][2] = {
    {-63, -23}, {-63, 13}, {-40, -63}, {-40, -10}, {-40, 13}, {-40, 47}, {-23, -40}, {-23, -23},
    {-23, 1},   {-23, 13}, {-23, 28},  {-10, -63}, {-10, 1},  {-10, 13}, {-10, 47},  {1, -23},
    {1, -10},   {1, 1},    {1, 13},    {1, 28},    {13, -40}, {13, -23}, {13, -10},  {13, 1},
    {13, 13},   {28, -63}, {28, -23},  {28, 1},    {28, 28},  {28, 47},  {47, -23},  {47, 13}};

// The scales that a format keeps of 256 values: each group of group_values values has a scale, an
// integer among `min`, min + step, .. max.
struct GroupScales {
  int group_values;  // 16 or 32
  int min;
  int max;
  int step;

  int groups() const { return 256 / group_values; }
};

// value[i] = (d * scales[g]) * (level of codes[i] + (shifted[g] ? shift : 0)), g = i / group_values
struct ShiftedFit {
  PackedHalf d;
  int16_t scales[16];
  bool shifted[16];
  uint8_t codes[256];
};

ShiftedFit FitIq2K(const float* values, const float* importance);
ShiftedFit FitIq3K(const float* values, const float* importance);
ShiftedFit FitIq4K(const float* values, const float* importance);
ShiftedFit FitIq5K(const float* values, const float* importance);
ShiftedFit FitIq6K(const float* values, const float* importance);

// ---- Rows with a factor of their own -------------------------------------------------------

// A row of blocks with one factor: value[i] is that of ShiftedFit, with this `d` in place of the
// block's. The head of a row in the format can hold `d` exactly.
struct ShiftedRowFit {
  float d;
  std::vector<ShiftedFit> blocks;
};

ShiftedRowFit FitIq2Ks(const float* values, const float* importance, int64_t count);
ShiftedRowFit FitIq3Ks(const float* values, const float* importance, int64_t count);
ShiftedRowFit FitIq4Ks(const float* values, const float* importance, int64_t count);
ShiftedRowFit FitIq5Ks(const float* values, const float* importance, int64_t count);
// The four codes 2k, 2k + 1, 2k + 16 and 2k + 17 of every 32 have an even number of bits together.
ShiftedRowFit FitIq4Kss(const float* values, const float* importance, int64_t count);

// Codes: the numbers of a group's 16 pairs, then 16 that mean nothing.
ShiftedRowFit FitIq2Kl(const float* values, const float* importance, int64_t count);

}  // namespace kvant::quant
