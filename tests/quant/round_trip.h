// Shared by the tests of encoders: values like weights, and their decoded values in a format.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include "quant/format.h"

namespace kvant::quant {

inline std::vector<float> Gaussian(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

inline std::vector<float> RoundTrip(const FormatTraits& format, const std::vector<float>& values,
                                    const float* importance = nullptr) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> blocks(static_cast<size_t>(format.row_bytes(count)));
  format.encode(values.data(), importance, blocks.data(), count);
  std::vector<float> decoded(values.size());
  format.decode(blocks.data(), decoded.data(), count);
  return decoded;
}

}  // namespace kvant::quant
