// Finds the scales, points and signs with which a block of the IQ1, IQ2 and IQ3 formats stores 256
// values best: the minimum of sum_i w_i (x_i - decode_i)^2 under the rules of
// quant/search/scale_search.h for weights, for values that are not finite, and for very small ones.
//
// The nearest point of the grid is taken for a given scale, or one that is hardly farther, signs
// included: where a format stores seven of eight signs, the point is chosen together with the sign
// that has to give way.
//
// Thread-safety: pure functions. Results are the same whatever the width of the machine's vectors.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/format.h"

namespace kvant::quant {

// value[i] = (d * unit * (2 * scales[i / group_values] + 1)) * code[i]; the codes of a vector (8 or
// 4 values) are those of points[vector], with
//   - IQ2, IQ3: a minus sign where bit i % 8 of signs[i / 8] is set,
//   - IQ1: +1 added, or -1 where minus[i / 8] is set.
struct GridFit {
  PackedHalf d;
  uint8_t scales[16];
  uint16_t points[64];
  uint8_t signs[32];
  bool minus[32];
};

GridFit FitIq1S(const float* values, const float* importance);
GridFit FitIq1M(const float* values, const float* importance);
GridFit FitIq2Xxs(const float* values, const float* importance);
GridFit FitIq2Xs(const float* values, const float* importance);
GridFit FitIq2S(const float* values, const float* importance);
GridFit FitIq3Xxs(const float* values, const float* importance);
GridFit FitIq3S(const float* values, const float* importance);

}  // namespace kvant::quant
