// The fits of quant/search/grid_fit.h with the vectors that every machine has.
#include "quant/search/grid_fit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "quant/formats/iq_grids.h"
#include "quant/formats/unit_values.h"
#include "quant/search/grid_cubes.h"
#include "quant/search/grid_minima.h"

namespace kvant::quant {
namespace {

constexpr int kVectorBytes = 16;
// clang-format off
#include "quant/search/lane_operations.inl"
#include "quant/search/byte_operations.inl"
#include "quant/search/lanes.inl"
#include "quant/search/level_search.inl"
#include "quant/search/grid_search.inl"
#include "quant/search/cube_search.inl"
#include "quant/search/grid_fit.inl"
// clang-format on

}  // namespace

GridFit FitIq1S(const float* values, const float* importance) {
  return SearchIq1S(values, importance);
}
GridFit FitIq1M(const float* values, const float* importance) {
  return SearchIq1M(values, importance);
}
GridFit FitIq2Xxs(const float* values, const float* importance) {
  return SearchIq2Xxs(values, importance);
}
GridFit FitIq2Xs(const float* values, const float* importance) {
  return SearchIq2Xs(values, importance);
}
GridFit FitIq2S(const float* values, const float* importance) {
  return SearchIq2S(values, importance);
}
GridFit FitIq3Xxs(const float* values, const float* importance) {
  return SearchIq3Xxs(values, importance);
}
GridFit FitIq3S(const float* values, const float* importance) {
  return SearchIq3S(values, importance);
}

}  // namespace kvant::quant
