// Norms as data. An RMS norm of x is x / sqrt(mean(x^2) + epsilon) * weight.
#pragma once

#include <cstdint>
#include <string_view>

namespace kvant::arch {

enum class NormKind : uint8_t { kRms };

struct Norm {
  NormKind kind = NormKind::kRms;
  std::string_view tensor;  // its weight, without the layer's prefix and ".weight"
  float epsilon = 0;
};

}  // namespace kvant::arch
