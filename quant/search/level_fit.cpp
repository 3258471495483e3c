// The fits of quant/search/level_fit.h, quant/search/shifted_fit.h and quant/formats/trellis.h with
// the vectors that every machine has.
#include "quant/search/level_fit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "quant/formats/trellis.h"
#include "quant/formats/unit_values.h"
#include "quant/search/shifted_fit.h"
#include "quant/search/trellis_cells.h"

namespace kvant::quant {
namespace {

constexpr int kVectorBytes = 16;
// clang-format off
#include "quant/search/lane_operations.inl"
#include "quant/search/lanes.inl"
#include "quant/search/level_search.inl"
#include "quant/search/level_fit.inl"
#include "quant/search/shifted_fit.inl"
#include "quant/search/shifted_row_fit.inl"
#include "quant/search/pair_fit.inl"
#include "quant/search/trellis_search.inl"
#include "quant/search/trellis_fit.inl"
// clang-format on

}  // namespace

float HalfOfUe4M3(uint8_t bits) {
  if (bits == 0x7f) return 0;
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  return exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -10)
                       : std::ldexp(static_cast<float>(8 + mantissa), exponent - 11);
}

LevelFit FitIq4Nl(const float* values, const float* importance) {
  return SearchIq4Nl(values, importance);
}
LevelFit FitTernary(const float* values, const float* importance) {
  return SearchTernary(values, importance);
}
LevelFit FitTernaryUpTo2(const float* values, const float* importance) {
  return SearchTernaryUpTo2(values, importance);
}
LevelFit FitTernaryUpTo2Of64(const float* values, const float* importance) {
  return SearchTernaryUpTo2Of64(values, importance);
}
LevelFit FitSigns(const float* values, const float* importance) {
  return SearchSigns(values, importance);
}
Iq4XsFit FitIq4Xs(const float* values, const float* importance) {
  return SearchIq4Xs(values, importance);
}
Mxfp4Fit FitMxfp4(const float* values, const float* importance) {
  return SearchMxfp4(values, importance);
}
Nvfp4Fit FitNvfp4(const float* values, const float* importance) {
  return SearchNvfp4(values, importance);
}

ShiftedFit FitIq2K(const float* values, const float* importance) {
  return SearchIq2K(values, importance);
}
ShiftedFit FitIq3K(const float* values, const float* importance) {
  return SearchIq3K(values, importance);
}
ShiftedFit FitIq4K(const float* values, const float* importance) {
  return SearchIq4K(values, importance);
}
ShiftedFit FitIq5K(const float* values, const float* importance) {
  return SearchIq5K(values, importance);
}
ShiftedFit FitIq6K(const float* values, const float* importance) {
  return SearchIq6K(values, importance);
}

ShiftedRowFit FitIq2Ks(const float* values, const float* importance, int64_t count) {
  return SearchIq2Ks(values, importance, count);
}
ShiftedRowFit FitIq3Ks(const float* values, const float* importance, int64_t count) {
  return SearchIq3Ks(values, importance, count);
}
ShiftedRowFit FitIq4Ks(const float* values, const float* importance, int64_t count) {
  return SearchIq4Ks(values, importance, count);
}
ShiftedRowFit FitIq5Ks(const float* values, const float* importance, int64_t count) {
  return SearchIq5Ks(values, importance, count);
}
ShiftedRowFit FitIq2Kl(const float* values, const float* importance, int64_t count) {
  return SearchIq2Kl(values, importance, count);
}
ShiftedRowFit FitIq4Kss(const float* values, const float* importance, int64_t count) {
  return SearchIq4Kss(values, importance, count);
}

TrellisRowFit FitIq1Kt(const float* values, const float* importance, int64_t count) {
  return SearchIq1Kt(values, importance, count);
}
TrellisRowFit FitIq2Kt(const float* values, const float* importance, int64_t count) {
  return SearchIq2Kt(values, importance, count);
}
TrellisRowFit FitIq3Kt(const float* values, const float* importance, int64_t count) {
  return SearchIq3Kt(values, importance, count);
}
TrellisRowFit FitIq4Kt(const float* values, const float* importance, int64_t count) {
  return SearchIq4Kt(values, importance, count);
}

}  // namespace kvant::quant
