#include "engine/graph/rowwise/rope.h"

#include <cmath>

namespace kvant::graph {

std::vector<float> RopeSpec::Frequencies(int64_t context) const {
  const bool is_long = !factors_long.empty() && context > original_context;
  const std::vector<float>& chosen = is_long ? factors_long : factors;
  std::vector<float> frequencies(static_cast<size_t>(n_rot / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(n_rot);
    const double factor = chosen.empty() ? 1.0 : static_cast<double>(chosen[i]);
    frequencies[i] = static_cast<float>(std::pow(static_cast<double>(base), exponent) /
                                        (factor * static_cast<double>(linear_factor)));
  }
  return frequencies;
}

}  // namespace kvant::graph
