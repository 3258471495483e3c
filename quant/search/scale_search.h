// Finds the scales, offsets and codes with which a block stores given values best: the part that
// all encoders share. The fit minimises sum_i w_i (x_i - decode_i)^2, where decode_i already has
// its scales rounded to what the block can hold and w_i is the value's importance.
//
// Thread-safety: pure functions. Results are the same on every machine:
// quant/search/scale_search.inl is plain binary32 arithmetic in a fixed order for one block, here,
// and for several side by side in the vectors of an instruction set, in cpu/generic/encode.inl.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/format.h"

namespace kvant::quant {

// The search uses two facts: for fixed codes the best scale and offset solve a weighted
// least-squares problem, and for fixed scales the best code is the nearest one. It starts from
// several scales and keeps the best result. One of the scales is the plain convention's, which
// spreads the codes over the largest magnitude or the range of the values.
//
// Values: NaN encodes as 0; infinities, and values beyond the largest that a block can hold
// (half-precision scales end at 65504), saturate. A block whose values are all below half of the
// smallest half-precision number encodes as zeros.
//
// Importance: null or one weight per value; negative and non-finite ones count as 0. Without it, or
// where all of a block's weights are 0, all values weigh the same, unless a shape lets magnitudes
// count. Divergences of trained models decided which do (bench/results/quantization.md).

struct CodeRange {
  int min;
  int max;
};

// Whether large values count more: each weight is then multiplied by 6 m + x^2, where m is the mean
// of the block's squares.
enum class Magnitude { kIgnored, kCounts, kCountsWithoutImportance };

// ---- Blocks with one scale -----------------------------------------------------------------

inline constexpr int kSingleBlockValues = 32;

// value[i] = d * codes[i] + m
struct BlockFit {
  PackedHalf d;
  PackedHalf m;
  int8_t codes[kSingleBlockValues];
};

// A shape without a minimum (m = 0). Values k * d with a half d and integer k in the range, some of
// which are d * range.min or d * range.max, are kept exactly.
struct ScaleShape {
  static constexpr bool kUsesImportance = true;
  CodeRange codes;
  Magnitude magnitude = Magnitude::kIgnored;
};

// A shape without a minimum and without a search: the largest magnitude becomes the code range.max
// (or -range.max), and values k * d as above are kept exactly, with the same d > 0.
struct PeakShape {
  static constexpr bool kUsesImportance = false;
  CodeRange codes;
};

// A shape with a minimum: codes are 0 .. code_max.
struct LineShape {
  static constexpr bool kUsesImportance = true;
  int code_max;
};

BlockFit FitBlock(const float* values, const float* importance, const ScaleShape& shape);
BlockFit FitBlock(const float* values, const float* importance, const PeakShape& shape);
BlockFit FitBlock(const float* values, const float* importance, const LineShape& shape);

// ---- Blocks of 256 with quantized scales ---------------------------------------------------

inline constexpr int kSuperblockValues = 256;
inline constexpr int kSuperblockGroupsMax = 16;

struct SuperblockShape {
  static constexpr bool kUsesImportance = true;
  int group_values;  // values that share a scale: 16 or 32
  CodeRange codes;
  CodeRange scales;
  int offset_max;  // offsets are 0 .. offset_max; 0: the format has none
  Magnitude magnitude = Magnitude::kIgnored;
};

// value[i] = (d * scales[g]) * codes[i] - dmin * offsets[g], g = i / group_values
struct SuperblockFit {
  PackedHalf d;
  PackedHalf dmin;
  int8_t scales[kSuperblockGroupsMax];
  int8_t offsets[kSuperblockGroupsMax];
  int8_t codes[kSuperblockValues];
};

SuperblockFit FitBlock(const float* values, const float* importance, const SuperblockShape& shape);

}  // namespace kvant::quant
