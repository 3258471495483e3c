#include "engine/speech/mel_filters.h"

#include <algorithm>
#include <cmath>

#include "kvant/speech.h"

namespace kvant::speech {
namespace {

constexpr double kLinearHz = 200.0 / 3;  // a step of the linear part
constexpr double kLogFromHz = 1000;      // where the logarithmic part begins
constexpr double kLogFromMel = kLogFromHz / kLinearHz;

double LogStep() { return std::log(6.4) / 27; }

double MelOf(double hz) {
  if (hz < kLogFromHz) return hz / kLinearHz;
  return kLogFromMel + std::log(hz / kLogFromHz) / LogStep();
}

double HzOf(double mel) {
  if (mel < kLogFromMel) return kLinearHz * mel;
  return kLogFromHz * std::exp(LogStep() * (mel - kLogFromMel));
}

}  // namespace

std::vector<MelFilter> MelFilters(int64_t bands, size_t length) {
  const double rate = static_cast<double>(kSoundRate);
  const double top = MelOf(rate / 2);
  // Corners of the triangles: each begins at the corner before its peak and ends behind it.
  std::vector<double> corners;
  for (int64_t i = 0; i < bands + 2; ++i) {
    corners.push_back(HzOf(top * static_cast<double>(i) / static_cast<double>(bands + 1)));
  }
  std::vector<MelFilter> filters;
  for (size_t band = 0; band < static_cast<size_t>(bands); ++band) {
    const double left = corners[band];
    const double peak = corners[band + 1];
    const double right = corners[band + 2];
    MelFilter filter;
    for (size_t k = 0; k <= length / 2; ++k) {
      const double hz = static_cast<double>(k) * rate / static_cast<double>(length);
      const double height = std::min((hz - left) / (peak - left), (right - hz) / (right - peak));
      if (height <= 0) continue;
      if (filter.weights.empty()) filter.first = k;
      const double rounded = static_cast<double>(static_cast<float>(height));
      filter.weights.push_back(static_cast<float>(rounded * (2 / (right - left))));
    }
    filters.push_back(std::move(filter));
  }
  return filters;
}

}  // namespace kvant::speech
