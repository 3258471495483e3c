// The norms of queries and keys before a delta rule.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/graph/rowwise/norm.h"

namespace kvant::graph {

// Each vector of `dim` values is divided by its length, the square root of its squares and 1e-6,
// and a query also by sqrt(dim).
struct DeltaNorms {
  Norm query;
  Norm key;
};

inline DeltaNorms MakeDeltaNorms(int64_t dim) {
  constexpr float kLengthEpsilon = 1e-6f;
  // x / sqrt(sum of squares + e) is the RMS norm with e / n and weights 1 / sqrt(n).
  const auto size = static_cast<float>(dim);
  const auto count = static_cast<size_t>(dim);
  return {
      {NormKind::kRms, kLengthEpsilon / size, std::vector<float>(count, 1.0f / size)},
      {NormKind::kRms, kLengthEpsilon / size, std::vector<float>(count, 1.0f / std::sqrt(size))}};
}

}  // namespace kvant::graph
