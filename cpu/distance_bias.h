// A term that the distance between a query and a key adds to the score of a head, as in T5 (arXiv
// 1910.10683). Thread-safety: plain data.
#pragma once

#include <cstdint>

namespace kvant::cpu {

// A table of biases by distance, which is the key's position less the query's. A head has `count`
// values for the distances from `least` on; the first and the last value also hold for all
// distances beyond. There are kDistancePadding copies of either beside them, so that a vector of
// neighbours is one load.
inline constexpr int64_t kDistancePadding = 16;
struct DistanceBias {
  const float* values = nullptr;  // [heads_per_kv][stride()]; null: nothing is added
  int64_t least = 0;
  int64_t count = 0;

  int64_t stride() const { return count + 2 * kDistancePadding; }
  // The address of a head's value for a distance; the values of the next distances follow.
  const float* At(int64_t head, int64_t distance) const {
    const int64_t index = distance - least;
    const int64_t within = index < -kDistancePadding ? -kDistancePadding
                           : index > count           ? count
                                                     : index;
    return values + head * stride() + kDistancePadding + within;
  }
};

}  // namespace kvant::cpu
