// What the distance between a query and a key adds to the score of a head, as in T5 (arXiv
// 1910.10683). Thread-safety: plain data.
#pragma once

#include <cstdint>

namespace kvant::cpu {

// What the distance of a key from a query, its position less the query's, adds to the score of a
// head: one of `count` numbers for the distances from `least` on, the first and last of which also
// hold for all distances beyond. There are kDistancePadding copies of either beside them, so that a
// vector of neighbours is one load.
inline constexpr int64_t kDistancePadding = 16;
struct DistanceBias {
  const float* values = nullptr;  // [heads_per_kv][stride()]; null: nothing is added
  int64_t least = 0;
  int64_t count = 0;

  int64_t stride() const { return count + 2 * kDistancePadding; }
  // Where a head's number for a distance stands, with those of the next ones behind it.
  const float* At(int64_t head, int64_t distance) const {
    const int64_t index = distance - least;
    const int64_t within = index < -kDistancePadding ? -kDistancePadding
                           : index > count           ? count
                                                     : index;
    return values + head * stride() + kDistancePadding + within;
  }
};

}  // namespace kvant::cpu
