// The inputs and outputs of nodes: values as floats, as quantized rows, or as both.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/graph/plan.h"

namespace kvant::graph {

// A value as floats and as quantized rows, as far as its readers need them: either may be kNoValue.
struct Activations {
  ValueId floats = kNoValue;
  ValueId int8 = kNoValue;
  int64_t cols = 0;
  std::optional<int> observed = {};  // the observer's number for it; there are floats then
  // The values that are there.
  std::vector<ValueId> ids() const {
    std::vector<ValueId> list;
    if (floats != kNoValue) list.push_back(floats);
    if (int8 != kNoValue) list.push_back(int8);
    return list;
  }
};

// A small vector of a model (norm weights, biases), decoded once.
using WeightVector = std::vector<float>;

}  // namespace kvant::graph
