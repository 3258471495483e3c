// Sees the inputs of matrix products as floats, before any quantization: what importance matrices
// are made of. A plan built with an observer has one more node before every product that it wants
// to watch; a plan built without has none, so that observing costs nothing where it is not used.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/thread_pool.h"

namespace kvant::graph {

class MatMulObserver {
 public:
  virtual ~MatMulObserver() = default;

  // While the plan is built: the tensors of these names, `cols` columns each, will be multiplied
  // with one and the same input. Returns a number for that input, or nullopt to leave it alone.
  virtual std::optional<int> Watch(std::span<const std::string> weights, int64_t cols) = 0;

  // While it runs: the input in one pass, `rows` rows that lie `stride` floats apart. Every member
  // of the team calls this, at the same time, each with columns of its own that do not change from
  // call to call.
  virtual void Observe(int input, const float* values, int64_t stride, int64_t rows,
                       const Range& columns) = 0;

  // While the plan is built: each of the tensors holds the matrices of `experts` experts, and
  // expert e is multiplied with the rows [offsets[e], offsets[e + 1]) of the input. An observer may
  // leave experts alone.
  virtual std::optional<int> WatchExperts(std::span<const std::string> weights, int64_t cols,
                                          int64_t experts) {
    (void)weights;
    (void)cols;
    (void)experts;
    return std::nullopt;
  }
  virtual void ObserveExperts(int input, const float* values, int64_t stride,
                              std::span<const int32_t> offsets, const Range& columns) {
    (void)input;
    (void)values;
    (void)stride;
    (void)offsets;
    (void)columns;
  }
};

}  // namespace kvant::graph
