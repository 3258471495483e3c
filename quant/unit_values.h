// What the fits of the codebook formats start from: a block's values scaled by a power of two to
// magnitudes below 2, with usable weights. The rules are those of quant/scale_search.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/block.h"
#include "quant/format.h"

namespace kvant::quant {

// value = stored value * 2^exponent
struct UnitValues {
  alignas(64) float values[kBlockValuesMax];   // |value| < 2, no NaN
  alignas(64) float weights[kBlockValuesMax];  // > 0
  int exponent;
  bool all_zero;

  UnitValues(const float* from, const float* importance, int count);

  // The half nearest to a scale of the unit range that keeps it finite, positive and not 0.
  PackedHalf StoreScale(float scale) const {
    constexpr float kHalfMin = 0x1p-24f;
    constexpr float kHalfMax = 65504.0f;
    return PackedHalf::Nearest(std::copysign(
        std::clamp(std::fabs(std::ldexp(scale, exponent)), kHalfMin, kHalfMax), scale));
  }
  float Load(PackedHalf half) const { return std::ldexp(half.value(), -exponent); }
};

inline UnitValues::UnitValues(const float* from, const float* importance, int count) {
  constexpr float kMax = std::numeric_limits<float>::max();
  auto sanitized = [kMax](float x) { return std::isnan(x) ? 0.0f : std::clamp(x, -kMax, kMax); };
  float largest = 0;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::fabs(sanitized(from[i])));
  all_zero = largest < 0x1p-25f;
  if (all_zero) return;
  exponent = std::ilogb(largest);
  const double unit = std::ldexp(1.0, -exponent);
  for (int i = 0; i < count; ++i) values[i] = static_cast<float>(sanitized(from[i]) * unit);

  // A trace of weight everywhere keeps the sums positive, and unimportant values sensible.
  constexpr float kTrace = 1e-6f;
  auto usable = [](float w) { return std::isfinite(w) ? std::max(w, 0.0f) : 0.0f; };
  float heaviest = 0;
  for (int i = 0; importance != nullptr && i < count; ++i) {
    heaviest = std::max(heaviest, usable(importance[i]));
  }
  for (int i = 0; i < count; ++i) {
    weights[i] = heaviest > 0 ? std::max(usable(importance[i]) / heaviest, kTrace) : 1.0f;
  }
}

}  // namespace kvant::quant
