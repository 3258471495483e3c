// The input of the fits of the codebook formats: a block's values scaled by a power of two to
// magnitudes below 2, with usable weights. The rules are those of quant/search/scale_search.h.
// quant/search/level_search.inl makes these values in vectors.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/block.h"
#include "quant/format.h"

namespace kvant::quant {

// value = stored value * 2^exponent
struct UnitValues {
  alignas(64) float values[kBlockValuesMax];    // |value| < 2, no NaN
  alignas(64) float weights[kBlockValuesMax];   // > 0
  alignas(64) float weighted[kBlockValuesMax];  // products of the two
  int exponent;
  bool all_zero;

  // The half nearest to a scale of the unit range that keeps it finite, positive and not 0.
  PackedHalf StoreScale(float scale) const {
    constexpr float kHalfMin = 0x1p-24f;
    constexpr float kHalfMax = 65504.0f;
    return PackedHalf::Nearest(std::copysign(
        std::clamp(std::fabs(std::ldexp(scale, exponent)), kHalfMin, kHalfMax), scale));
  }
  float Load(PackedHalf half) const { return std::ldexp(half.value(), -exponent); }
};

}  // namespace kvant::quant
