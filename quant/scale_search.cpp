// The search of quant/scale_search.h, in this order: one scale, a scale and an offset, codes for
// given scales, superblocks.
//
// It works on values scaled by a power of two to magnitudes below 2, so that squares neither
// overflow nor vanish whatever the input's size. The scaling is exact, except that values 2^-100
// times smaller than the block's largest may become 0.
#include "quant/scale_search.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

namespace kvant::quant {
namespace {

constexpr float kHalfMax = 65504.0f;
constexpr float kHalfMin = 0x1p-24f;  // the smallest subnormal
constexpr int kLanes = 16;

// Differences this far below a block's largest value are treated as none.
constexpr float kNegligible = 0x1p-60f;

// A sum whose order is fixed: term i goes to lane i % 16, and the lanes are added pairwise.
class LaneSum {
 public:
  void Add(int i, float term) { lanes_[i % kLanes] += term; }
  float Total() const {
    float sums[kLanes];
    std::copy_n(lanes_, kLanes, sums);
    for (int width = kLanes / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
    }
    return sums[0];
  }

 private:
  float lanes_[kLanes] = {};
};

// To nearest even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bits below the units.
float RoundToEven(float x) { return (x + 12582912.0f) - 12582912.0f; }

// Some of a block's values, ready for fitting.
struct Samples {
  const float* values;   // |value| < 2
  const float* weights;  // > 0
  int count;
};

// A block scaled to the unit range: value = stored value * 2^exponent.
struct ScaledBlock {
  float values[kBlockValuesMax];
  float weights[kBlockValuesMax];
  int exponent = 0;
  bool all_zero = false;

  Samples Group(int begin, int count) const { return {values + begin, weights + begin, count}; }

  // The nearest finite half to a number of the unit range.
  PackedHalf Store(float number) const {
    return PackedHalf::Nearest(std::clamp(std::ldexp(number, exponent), -kHalfMax, kHalfMax));
  }
  // The same for a scale, which stays different from zero.
  PackedHalf StoreScale(float number) const {
    const PackedHalf half = Store(number);
    if (number == 0 || half.value() != 0) return half;
    return PackedHalf::Nearest(std::copysign(kHalfMin, number));
  }
  float Load(PackedHalf half) const { return std::ldexp(half.value(), -exponent); }
};

float Sanitized(float value) {
  if (std::isnan(value)) return 0;
  constexpr float kMax = std::numeric_limits<float>::max();
  return std::clamp(value, -kMax, kMax);
}

ScaledBlock Prepare(const float* values, const float* importance, int count) {
  ScaledBlock block;
  float largest = 0;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::fabs(Sanitized(values[i])));
  block.all_zero = largest < kHalfMin / 2;
  if (block.all_zero) return block;
  block.exponent = std::ilogb(largest);
  const double unit = std::ldexp(1.0, -block.exponent);
  for (int i = 0; i < count; ++i) {
    block.values[i] = static_cast<float>(Sanitized(values[i]) * unit);
  }

  // A trace of weight everywhere keeps the sums positive, and unimportant values sensible.
  constexpr float kTrace = 1e-6f;
  float heaviest = 0;
  auto usable = [&](int i) { return std::isfinite(importance[i]) ? importance[i] : 0.0f; };
  if (importance != nullptr) {
    for (int i = 0; i < count; ++i) heaviest = std::max(heaviest, usable(i));
  }
  for (int i = 0; i < count; ++i) {
    block.weights[i] = heaviest > 0 ? std::max(usable(i), 0.0f) / heaviest + kTrace : 1.0f;
  }
  return block;
}

// ---- One scale, no offset ------------------------------------------------------------------

float NearestCode(float value, float inverse_scale, CodeRange range) {
  return RoundToEven(std::clamp(value * inverse_scale, static_cast<float>(range.min),
                                static_cast<float>(range.max)));
}

float InverseOrZero(float scale) { return std::fabs(scale) >= 0x1p-126f ? 1 / scale : 0; }

// The least-squares scale for the codes nearest to values * inverse_scale, and the squared error
// that it removes compared with all zeros.
struct ScaleStep {
  float scale = 0;
  float gain = 0;
};

ScaleStep RefitScale(const Samples& x, float inverse_scale, CodeRange range) {
  LaneSum value_code;
  LaneSum code_code;
  for (int i = 0; i < x.count; ++i) {
    const float code = NearestCode(x.values[i], inverse_scale, range);
    const float weighted = x.weights[i] * code;
    value_code.Add(i, weighted * x.values[i]);
    code_code.Add(i, weighted * code);
  }
  const float denominator = code_code.Total();
  if (denominator <= 0) return {};
  const float numerator = value_code.Total();
  return {numerator / denominator, numerator / denominator * numerator};
}

float Peak(const Samples& x) {
  float peak = 0;
  for (int i = 0; i < x.count; ++i) {
    if (std::fabs(x.values[i]) > std::fabs(peak)) peak = x.values[i];
  }
  return peak;
}

// The end of the range that the plain convention gives to the value of largest magnitude.
int FarEnd(CodeRange range) { return -range.min >= range.max ? range.min : range.max; }

// Starts in code units: the value of largest magnitude is placed around the far end of the range,
// and around the other end, where it may be cut off while the far end serves the other sign.
constexpr float kStartStep = 0.25f;
constexpr int kFarStarts = 6;    // on either side of the far end
constexpr int kOtherStarts = 8;  // from the other end outwards

float SearchScale(const Samples& x, CodeRange range) {
  const float peak = Peak(x);
  if (std::fabs(peak) < kNegligible) return 0;
  ScaleStep best;
  auto consider = [&](float target) {
    const ScaleStep step = RefitScale(x, target / peak, range);
    if (step.gain > best.gain) best = step;
  };
  const float far_end = static_cast<float>(FarEnd(range));
  const float other_end = static_cast<float>(range.min + range.max) - far_end;
  for (int k = -kFarStarts; k <= kFarStarts; ++k) {
    consider(far_end + kStartStep * static_cast<float>(k));
  }
  const float outwards = std::copysign(kStartStep, other_end);
  for (int k = 0; other_end != 0 && k < kOtherStarts; ++k) {
    consider(other_end + outwards * static_cast<float>(k));
  }
  return best.scale;
}

// ---- A scale and an offset -----------------------------------------------------------------

// value ~ scale * code - offset
struct Line {
  float scale = 0;
  float offset = 0;
};

enum class OffsetSign { kAny, kNonNegative };

struct LineStep {
  Line line;
  float gain = 0;  // the squared error that the line removes, compared with the constant `origin`
};

// The least-squares line for the codes nearest to (value - low) * inverse_scale. Sums are relative
// to `origin`, which lies among the values, so that nothing cancels when their range is small.
LineStep RefitLine(const Samples& x, float origin, float low, float inverse_scale, int code_max,
                   OffsetSign sign) {
  LaneSum weights, codes, squares, values, products;
  for (int i = 0; i < x.count; ++i) {
    const float code = NearestCode(x.values[i] - low, inverse_scale, {0, code_max});
    const float value = x.values[i] - origin;
    const float weight = x.weights[i];
    weights.Add(i, weight);
    codes.Add(i, weight * code);
    squares.Add(i, weight * code * code);
    values.Add(i, weight * value);
    products.Add(i, weight * value * code);
  }
  const float w = weights.Total();
  const float c = codes.Total();
  const float cc = squares.Total();
  const float v = values.Total();
  const float vc = products.Total();
  const float determinant = w * cc - c * c;
  if (determinant <= 0x1p-20f * w * cc) return {};  // all codes (nearly) equal
  float scale = (w * vc - v * c) / determinant;
  float base = (cc * v - c * vc) / determinant;  // value - origin ~ scale * code + base
  if (sign == OffsetSign::kNonNegative && base > -origin) {
    base = -origin;
    scale = (vc - base * c) / cc;
  }
  const float gain =
      2 * (scale * vc + base * v) - scale * scale * cc - 2 * scale * base * c - base * base * w;
  return {{scale, -(origin + base)}, gain};
}

// Starts: the codes cover the range of the values, moved at either end by parts of a code.
constexpr float kLowShifts[] = {-1.0f / 3, 0, 1.0f / 3};
constexpr float kHighShifts[] = {-1, -0.75f, -0.5f, -0.25f, 0, 0.25f, 0.5f, 0.75f, 1};

// The line of the plain convention: code 0 is the least value, or 0 where offsets have a sign.
Line RangeLine(const Samples& x, int code_max, OffsetSign sign) {
  const auto [low, high] = std::minmax_element(x.values, x.values + x.count);
  const float base = sign == OffsetSign::kNonNegative ? std::min(*low, 0.0f) : *low;
  return {(*high - base) / static_cast<float>(code_max), -base};
}

Line SearchLine(const Samples& x, int code_max, OffsetSign sign) {
  const Line plain = RangeLine(x, code_max, sign);
  if (plain.scale < kNegligible) return {0, plain.offset};
  const float origin = -plain.offset;
  LineStep best{plain, 0};
  auto consider = [&](float low, float scale) {
    const LineStep step = RefitLine(x, origin, low, 1 / scale, code_max, sign);
    if (step.line.scale > kNegligible && step.gain > best.gain) best = step;
  };
  for (const float low : kLowShifts) {
    for (const float high : kHighShifts) {
      const float stretch = 1 - (low + high) / static_cast<float>(code_max);
      consider(origin + low * plain.scale, plain.scale * stretch);
    }
  }
  consider(-best.line.offset, best.line.scale);
  return best.line;
}

// ---- Codes for given scales ----------------------------------------------------------------

// The nearest codes and their weighted squared error.
float RoundCodes(const Samples& x, Line line, CodeRange range, int8_t* codes) {
  const float inverse = InverseOrZero(line.scale);
  LaneSum error;
  for (int i = 0; i < x.count; ++i) {
    const float code = NearestCode(x.values[i] + line.offset, inverse, range);
    const float difference = x.values[i] - (line.scale * code - line.offset);
    error.Add(i, x.weights[i] * difference * difference);
    codes[i] = static_cast<int8_t>(code);
  }
  return error.Total();
}

// The best of several lines once they are stored in a block.
BlockFit BestFit(const ScaledBlock& block, std::initializer_list<Line> lines, CodeRange range) {
  BlockFit best{};
  float best_error = std::numeric_limits<float>::infinity();
  for (const Line& line : lines) {
    BlockFit fit{};
    fit.d = block.StoreScale(line.scale);
    fit.m = block.Store(-line.offset);
    const Line stored{block.Load(fit.d), -block.Load(fit.m)};
    const float error = RoundCodes(block.Group(0, kSingleBlockValues), stored, range, fit.codes);
    if (error < best_error) {
      best_error = error;
      best = fit;
    }
  }
  return best;
}

// ---- Superblocks ---------------------------------------------------------------------------

// What the integer scales and offsets of a superblock count: d and dmin.
struct Units {
  float scale = 0;
  float offset = 0;
};

// Picks the integer scale and offset of group g, from the nearest to the ideal line and their
// neighbours, by the error that is left once the codes are rounded. Returns that error.
float ChooseGroup(const Samples& x, const SuperblockShape& shape, Units units, Line ideal, int g,
                  SuperblockFit& fit) {
  const float scale = NearestCode(ideal.scale, InverseOrZero(units.scale), shape.scales);
  const CodeRange offsets{0, shape.offset_max};
  const float offset = NearestCode(ideal.offset, InverseOrZero(units.offset), offsets);
  float best_error = std::numeric_limits<float>::infinity();
  int8_t codes[kBlockValuesMax];
  for (int s = static_cast<int>(scale) - 1; s <= static_cast<int>(scale) + 1; ++s) {
    if (s < shape.scales.min || s > shape.scales.max) continue;
    for (int m = static_cast<int>(offset) - 1; m <= static_cast<int>(offset) + 1; ++m) {
      if (m < offsets.min || m > offsets.max) continue;
      const Line line{units.scale * static_cast<float>(s), units.offset * static_cast<float>(m)};
      const float error = RoundCodes(x, line, shape.codes, codes);
      if (error >= best_error) continue;
      best_error = error;
      fit.scales[g] = static_cast<int8_t>(s);
      fit.offsets[g] = static_cast<int8_t>(m);
      std::copy_n(codes, x.count, fit.codes + g * shape.group_values);
    }
  }
  return best_error;
}

// The least-squares units for the integers of a fit.
Units RefitUnits(const ScaledBlock& block, const SuperblockShape& shape, const SuperblockFit& fit) {
  LaneSum ss, mm, sm, xs, xm;
  for (int i = 0; i < kSuperblockValues; ++i) {
    const int g = i / shape.group_values;
    const float s = static_cast<float>(fit.scales[g]) * static_cast<float>(fit.codes[i]);
    const float m = static_cast<float>(fit.offsets[g]);
    const float w = block.weights[i];
    const float x = block.values[i];
    ss.Add(i, w * s * s);
    mm.Add(i, w * m * m);
    sm.Add(i, w * s * m);
    xs.Add(i, w * x * s);
    xm.Add(i, w * x * m);
  }
  // x ~ scale * s - offset * m
  const float determinant = ss.Total() * mm.Total() - sm.Total() * sm.Total();
  if (determinant <= 0x1p-20f * ss.Total() * mm.Total()) {
    return {ss.Total() > 0 ? xs.Total() / ss.Total() : 0, 0};
  }
  return {(xs.Total() * mm.Total() - xm.Total() * sm.Total()) / determinant,
          (xs.Total() * sm.Total() - xm.Total() * ss.Total()) / determinant};
}

// Rounds of: integers for the units, units for the integers.
constexpr int kUnitRounds = 2;

}  // namespace

BlockFit FitBlock(const float* values, const float* importance, CodeRange range) {
  const ScaledBlock block = Prepare(values, importance, kSingleBlockValues);
  if (block.all_zero) return {};
  const Samples x = block.Group(0, kSingleBlockValues);
  const Line plain{Peak(x) / static_cast<float>(FarEnd(range)), 0};
  const Line searched{SearchScale(x, range), 0};
  return BestFit(block, {plain, searched}, range);
}

BlockFit FitBlockToPeak(const float* values, CodeRange range) {
  const ScaledBlock block = Prepare(values, nullptr, kSingleBlockValues);
  if (block.all_zero) return {};
  const float peak = std::fabs(Peak(block.Group(0, kSingleBlockValues)));
  return BestFit(block, {Line{peak / static_cast<float>(range.max), 0}}, range);
}

BlockFit FitBlockWithMin(const float* values, const float* importance, int code_max) {
  const ScaledBlock block = Prepare(values, importance, kSingleBlockValues);
  if (block.all_zero) return {};
  const Samples x = block.Group(0, kSingleBlockValues);
  const Line plain = RangeLine(x, code_max, OffsetSign::kAny);
  const Line searched = SearchLine(x, code_max, OffsetSign::kAny);
  return BestFit(block, {plain, searched}, {0, code_max});
}

SuperblockFit FitSuperblock(const float* values, const float* importance,
                            const SuperblockShape& shape) {
  const ScaledBlock block = Prepare(values, importance, kSuperblockValues);
  if (block.all_zero) return {};
  const int groups = kSuperblockValues / shape.group_values;

  Line ideals[kSuperblockGroupsMax];
  float scales[kSuperblockGroupsMax];
  float offsets[kSuperblockGroupsMax];
  float weights[kSuperblockGroupsMax];
  for (int g = 0; g < groups; ++g) {
    const Samples x = block.Group(g * shape.group_values, shape.group_values);
    ideals[g] = shape.offset_max > 0 ? SearchLine(x, shape.codes.max, OffsetSign::kNonNegative)
                                     : Line{SearchScale(x, shape.codes), 0};
    scales[g] = ideals[g].scale;
    offsets[g] = ideals[g].offset;
    LaneSum weight;
    for (int i = 0; i < x.count; ++i) weight.Add(i, x.weights[i]);
    weights[g] = weight.Total();
  }

  Units units{SearchScale({scales, weights, groups}, shape.scales),
              SearchScale({offsets, weights, groups}, {0, shape.offset_max})};
  SuperblockFit best{};
  float best_error = std::numeric_limits<float>::infinity();
  for (int round = 0; round < kUnitRounds; ++round) {
    SuperblockFit fit{};
    fit.d = block.StoreScale(units.scale);
    fit.dmin = block.StoreScale(units.offset);
    units = {block.Load(fit.d), block.Load(fit.dmin)};
    float error = 0;
    for (int g = 0; g < groups; ++g) {
      const Samples x = block.Group(g * shape.group_values, shape.group_values);
      error += ChooseGroup(x, shape, units, ideals[g], g, fit);
    }
    if (error < best_error) {
      best_error = error;
      best = fit;
    }
    units = RefitUnits(block, shape, fit);
  }
  return best;
}

}  // namespace kvant::quant
