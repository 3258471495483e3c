// Chooses a format for each tensor so that the sum of the errors is least within a number of bytes.
//
// A knapsack of classes, solved twice: along the lower convex hulls of the tensors' candidates, the
// largest fall of the error for a byte first, which is optimal for all sizes that a whole number of
// steps reaches; and by dynamic programming over bytes in units of 1/32768, rounded up. From either
// choice the best changes of one or of two tensors follow until none helps, and the better one
// counts. Everything is decided by comparisons in the order of the tensors, so the same numbers
// give the same choice. Thread-safety: pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"

namespace kvant::quantize {

// A type that a tensor may get, by its bytes and its error.
struct BudgetCandidate {
  uint64_t bytes = 0;
  double error = 0;  // not below 0
};

// Called some hundred times a second with the part of the work that is done, 0 to 1; an error ends
// it. May be empty.
using BudgetProgress = std::function<Status(double done)>;

// Chooses a candidate for each item and returns their numbers. kInvalid if even the smallest
// candidates together take more than `bytes_max`. An item without candidates is a mistake of the
// caller.
Result<std::vector<size_t>> ChooseWithin(std::span<const std::vector<BudgetCandidate>> items,
                                         uint64_t bytes_max, const BudgetProgress& progress = {});

// Bytes of the smallest and of the largest choice that may be best.
uint64_t LeastBytes(std::span<const std::vector<BudgetCandidate>> items);
uint64_t MostBytes(std::span<const std::vector<BudgetCandidate>> items);

}  // namespace kvant::quantize
