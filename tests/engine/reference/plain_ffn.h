// The block arch::PlainFfn in plain loops, from the formula in its header.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/gated_ffn.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

inline double ReferenceXielu(const graph::Xielu& numbers, double x) {
  const double curve = x > 0 ? static_cast<double>(numbers.positive) * x * x
                             : static_cast<double>(numbers.negative) * (std::expm1(x) - x);
  return curve + static_cast<double>(numbers.beta) * x;
}

inline std::vector<Vector> Reference(const arch::PlainFfn& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  std::vector<Vector> out;
  for (const Vector& row : in) {
    Vector up = weights.Multiply(prefix + "ffn_up", row);
    for (double& value : up) {
      value = spec.xielu.has_value() ? ReferenceXielu(*spec.xielu, value)
                                     : ReferenceActivation(spec.activation, value);
    }
    out.push_back(weights.Multiply(prefix + "ffn_down", up));
  }
  return out;
}

}  // namespace kvant::test
