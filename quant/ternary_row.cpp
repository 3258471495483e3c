#include "quant/ternary_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvant::quant {

TernaryRowFit FitTernaryRow(const float* values, const float* importance, int64_t count,
                            float greatest) {
  constexpr double kMax = std::numeric_limits<float>::max();
  const auto value = [&](int64_t i) {
    return std::isnan(values[i]) ? 0.0 : std::clamp(double{values[i]}, -kMax, kMax);
  };
  double heaviest = 0;
  for (int64_t i = 0; importance != nullptr && i < count; ++i) {
    if (std::isfinite(importance[i])) heaviest = std::max(heaviest, double{importance[i]});
  }
  // A trace of weight everywhere keeps unimportant values sensible.
  const auto weight = [&](int64_t i) {
    if (heaviest == 0) return 1.0;
    return std::isfinite(importance[i]) ? std::max(importance[i] / heaviest, 1e-6) : 1e-6;
  };
  double squares = 0;
  double weights = 0;
  double peak = 0;
  for (int64_t i = 0; i < count; ++i) {
    squares += weight(i) * value(i) * value(i);
    weights += weight(i);
    peak = std::max(peak, std::fabs(value(i)));
  }
  TernaryRowFit fit{0, std::vector<uint8_t>(static_cast<size_t>(count), 1)};
  if (peak == 0) return fit;

  // Where values beyond half of the scale become 1, their mean is the best scale, with which others
  // may be beyond half.
  constexpr int kRounds = 6;
  double best = 0;
  double best_gain = 0;
  const double size = std::sqrt(squares / weights);
  for (const double start : {1.6 * size, 1.3 * size, 1.15 * size, size, 0.9 * size, 0.8 * size,
                             0.7 * size, 0.6 * size, 0.5 * size, peak}) {
    double scale = start;
    for (int round = 0; round < kRounds; ++round) {
      double sum = 0;
      double chosen = 0;
      for (int64_t i = 0; i < count; ++i) {
        if (std::fabs(value(i)) <= scale / 2) continue;
        sum += weight(i) * std::fabs(value(i));
        chosen += weight(i);
      }
      if (chosen == 0) break;
      scale = sum / chosen;
      if (sum * scale <= best_gain) continue;
      best_gain = sum * scale;
      best = scale;
    }
  }
  fit.d = static_cast<float>(std::min(best, double{greatest}));
  for (int64_t i = 0; i < count; ++i) {
    if (std::fabs(value(i)) <= best / 2) continue;
    fit.codes[static_cast<size_t>(i)] = value(i) > 0 ? 2 : 0;
  }
  return fit;
}

}  // namespace kvant::quant
