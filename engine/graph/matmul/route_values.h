// How routes of tokens to experts keep integers, and the sigmoid of scores and gates.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/graph/plan.h"

namespace kvant::graph {

// Values of integers lie in values of floats, which are as large.
inline int32_t* Integers(const PassContext& pass, ValueId id) {
  return reinterpret_cast<int32_t*>(pass.Bytes(id));
}
inline int32_t* IntegerRow(const PassContext& pass, ValueId id, int64_t row) {
  return reinterpret_cast<int32_t*>(pass.Bytes(id) + static_cast<size_t>(row) * pass.RowBytes(id));
}

inline float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

}  // namespace kvant::graph
