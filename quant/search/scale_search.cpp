// The search for one block at a time.
#include "quant/search/scale_search.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "base/half.h"

namespace kvant::quant {
namespace {

constexpr int kLanes = 1;

// clang-format off
#include "quant/search/lane_operations.inl"
#include "quant/search/lane_batch.inl"
#include "quant/search/scale_search.inl"
// clang-format on

template <class Fit, class Shape>
Fit FitOne(const float* values, const float* importance, const Shape& shape) {
  Fit fit;
  FitBlocks(&values, importance == nullptr ? nullptr : &importance, shape, &fit);
  return fit;
}

}  // namespace

BlockFit FitBlock(const float* values, const float* importance, const ScaleShape& shape) {
  return FitOne<BlockFit>(values, importance, shape);
}

BlockFit FitBlock(const float* values, const float* importance, const PeakShape& shape) {
  return FitOne<BlockFit>(values, importance, shape);
}

BlockFit FitBlock(const float* values, const float* importance, const LineShape& shape) {
  return FitOne<BlockFit>(values, importance, shape);
}

SuperblockFit FitBlock(const float* values, const float* importance, const SuperblockShape& shape) {
  return FitOne<SuperblockFit>(values, importance, shape);
}

}  // namespace kvant::quant
