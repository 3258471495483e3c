// Norms as data: engine/graph/rowwise/norm.h has the formulas.
#pragma once

#include <string_view>

#include "engine/graph/rowwise/norm.h"

namespace kvant::arch {

using graph::NormKind;

struct Norm {
  NormKind kind = NormKind::kRms;
  // Its weight is `tensor`.weight, its bias `tensor`.bias if there is one; without the layer's
  // prefix. Empty: a norm without weights.
  std::string_view tensor;
  float epsilon = 0;
};

}  // namespace kvant::arch
