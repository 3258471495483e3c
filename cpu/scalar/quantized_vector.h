// Numbers of a key, value or query vector as codes with one scale, in plain code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace kvant::cpu::scalar {

class QuantizedVector {
 public:
  // The largest magnitude becomes code_max, which is at most 127.
  QuantizedVector(const float* values, int64_t count, int code_max)
      : codes_(static_cast<size_t>(count), 0) {
    float absmax = 0.0f;
    for (int64_t i = 0; i < count; ++i) {
      if (!std::isfinite(values[i])) {
        scale_ = std::numeric_limits<float>::quiet_NaN();
        return;
      }
      absmax = std::max(absmax, std::abs(values[i]));
    }
    constexpr float kVanishing = 0x1p-110f;  // 127 divided by less may overflow
    if (absmax < kVanishing) return;
    const auto largest = static_cast<float>(code_max);
    scale_ = absmax / largest;
    const float inverse = largest / absmax;
    for (size_t i = 0; i < codes_.size(); ++i) {
      codes_[i] = static_cast<int>(std::nearbyint(values[i] * inverse));
    }
  }

  float scale() const { return scale_; }
  int operator[](int64_t i) const { return codes_[static_cast<size_t>(i)]; }

 private:
  std::vector<int> codes_;
  float scale_ = 0.0f;
};

}  // namespace kvant::cpu::scalar
