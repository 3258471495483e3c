// The search of quant/search/level_fit.h for the scale of some values that share one. Included
// inside a namespace, and a target region where there is one, after quant/search/lanes.inl and a
// LookUp.
//
// For a given scale every value takes its nearest level; for given levels the best scale is a
// least-squares problem. Scales are tried sixteen and more at once: each is a lane, which goes
// through the values in their order, so that results do not depend on the width of vectors.

// Ascending levels. The nearest to a number lies on either side of a border; which border it is,
// follows from a curve y -> y * (linear - bend * |y|) + origin (+ further terms), whose integer
// part is k where y is near the border above level k.
struct LevelCurve {
  float linear = 0;
  float bend = 0;
  float origin = 0;
  float square = 0;
  float cube = 0;
};

inline Floats Sizes(Floats v) {
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(v) & 0x7fffffff);
}

// Far outside of all levels only the direction counts; squares stay finite.
inline Floats InReach(Floats v) { return Max(Min(v, Splat(4096.0f)), Splat(-4096.0f)); }

template <int kCount>
struct Levels {
  // Fewer are counted by comparisons, which takes less time.
  static constexpr bool kHasCurve = kCount >= 7;
  static constexpr bool kIsCubic = kCount > 32;
  static constexpr int kPadded = kCount > 32 ? 64 : kCount > 16 ? 32 : kCount > 8 ? 16 : 8;
  alignas(64) float levels[kPadded];
  alignas(64) float borders[kPadded];  // between level k and level k + 1
  LevelCurve curve;

  Floats Curve(Floats y) const {
    const Floats size = Sizes(y);
    const Floats bent = y * (curve.linear - curve.bend * size) + curve.origin;
    if constexpr (!kIsCubic) return bent;
    return bent + y * y * (curve.square + curve.cube * y);
  }

  // The numbers of the nearest levels; of two that are as near, the lower one.
  Ints Number(Floats x) const {
    if constexpr (kHasCurve) {
      const Floats y = Max(Min(x, Splat(levels[kCount - 1])), Splat(levels[0]));
      const Ints below = __builtin_convertvector(Curve(y), Ints);
      return y > LookUp<Floats>(borders, below) ? below + 1 : below;
    } else {
      Ints number{};
#pragma GCC unroll 8
      for (int k = 0; k < kCount - 1; ++k) number -= x > Splat(borders[k]);
      return number;
    }
  }

  Floats Nearest(Floats x) const {
    if constexpr (kHasCurve) {
      return LookUp<Floats>(levels, Number(x));
    } else {
      Floats level = Splat(levels[0]);
#pragma GCC unroll 8
      for (int k = 0; k < kCount - 1; ++k) {
        level += x > Splat(borders[k]) ? Splat(levels[k + 1] - levels[k]) : Floats{};
      }
      return level;
    }
  }
};

// Whether the curve leads to the border next to every number between the outer levels.
template <int kCount>
constexpr bool CurveFits(const Levels<kCount>& levels) {
  constexpr double kMargin = 0.01;
  const LevelCurve& c = levels.curve;
  auto at = [&c](double y) {
    const double size = y < 0 ? -y : y;
    return y * (c.linear - c.bend * size) + c.origin + y * y * (c.square + c.cube * y);
  };
  for (int k = 0; k < kCount - 1; ++k) {
    const double y = levels.borders[k];
    if (at(y) < k + kMargin || at(y) > k + 1 - kMargin) return false;
  }
  return at(levels.levels[0]) > -1 + kMargin && at(levels.levels[kCount - 1]) < kCount - kMargin;
}

template <int kCount>
constexpr Levels<kCount> MakeLevels(const int8_t (&ascending)[kCount], LevelCurve curve = {}) {
  Levels<kCount> levels{};
  levels.curve = curve;
  for (int k = 0; k < Levels<kCount>::kPadded; ++k) {
    levels.levels[k] = ascending[std::min(k, kCount - 1)];
    levels.borders[k] = k < kCount - 1 ? 0.5f * static_cast<float>(ascending[k] + ascending[k + 1])
                                       : std::numeric_limits<float>::infinity();
  }
  return levels;
}

// ---- Values and weights ----------------------------------------------------------------------

// In all lanes.
template <int kStep>
Floats GreatestOfLanes(Floats v) {
  if constexpr (kStep == 0) {
    return v;
  } else {
    return GreatestOfLanes<kStep / 2>(Max(v, Exchange<kStep>(v)));
  }
}
inline float GreatestOf(Floats v) { return GreatestOfLanes<kWidth / 2>(v)[0]; }

inline void StoreValues(const float* from, int count, UnitValues& block) {
  constexpr float kMax = std::numeric_limits<float>::max();
  Floats greatest{};
  for (int i = 0; i < count; i += kWidth) {
    const Floats value = Load(from + i);
    const Floats sane = Max(Min(value == value ? value : Floats{}, Splat(kMax)), Splat(-kMax));
    Store(block.values + i, sane);
    greatest = Max(Sizes(sane), greatest);
  }
  const float largest = GreatestOf(greatest);
  block.all_zero = largest < 0x1p-25f;
  block.exponent = block.all_zero ? 0 : std::ilogb(largest);
  const Floats unit = Splat(std::ldexp(1.0f, -block.exponent));
  for (int i = 0; i < count; i += kWidth) {
    Store(block.values + i, Load(block.values + i) * unit);
  }
}

// Returns what the weights were divided by, 0 for nothing.
inline float StoreWeights(const float* importance, int count, UnitValues& block) {
  // A trace of weight everywhere keeps the sums positive, and unimportant values sensible.
  constexpr float kTrace = 1e-6f;
  constexpr float kMax = std::numeric_limits<float>::max();
  Floats greatest{};
  for (int i = 0; importance != nullptr && i < count; i += kWidth) {
    const Floats weight = Load(importance + i);
    const Floats usable = ((weight >= 0.0f) & (weight <= kMax)) ? weight : Floats{};
    Store(block.weights + i, usable);
    greatest = Max(usable, greatest);
  }
  const float heaviest = GreatestOf(greatest);
  for (int i = 0; i < count; i += kWidth) {
    const Floats weight = heaviest > 0 ? Load(block.weights + i) / heaviest : Splat(1.0f);
    const Floats usable = Max(weight, Splat(kTrace));
    Store(block.weights + i, usable);
    Store(block.weighted + i, usable * Load(block.values + i));
  }
  return heaviest;
}

// The part of a block that shares a scale.
struct LevelSamples {
  const float* values;
  const float* weights;
  const float* weighted;  // values times weights
  int count;              // a multiple of 16
};

struct UnitBlock : UnitValues {
  float heaviest = 0;  // weights were divided by it, unless it is 0

  UnitBlock(const float* from, const float* importance, int count) {
    StoreValues(from, count, *this);
    if (!all_zero) heaviest = StoreWeights(importance, count, *this);
  }

  LevelSamples Part(int begin, int count) const {
    return {values + begin, weights + begin, weighted + begin, count};
  }
};

// The value of largest magnitude; of two, the positive one.
inline float PeakOf(const LevelSamples& x) {
  Floats greatest = Load(x.values);
  Floats least = -greatest;
  for (int i = kWidth; i < x.count; i += kWidth) {
    greatest = Max(Load(x.values + i), greatest);
    least = Max(-Load(x.values + i), least);
  }
  const float above = GreatestOf(greatest);
  const float below = GreatestOf(least);
  return above >= below ? above : -below;
}

inline float RootMeanSquare(const LevelSamples& x) {
  LaneSum squares;
  LaneSum weights;
  for (int i = 0; i < x.count; i += kWidth) {
    const Floats value = Load(x.values + i);
    const Floats weight = Load(x.weights + i);
    squares.Add(i, weight * value * value);
    weights.Add(i, weight);
  }
  return std::sqrt(squares.Total() / weights.Total());
}

// sum w x l and sum w l l of the nearest levels l.
struct LevelSums {
  float product = 0;
  float square = 0;

  float BestScale() const { return square > 0 ? product / square : 0; }
  // The squared error that `scale` removes, compared with all zeros.
  float Gain(float scale) const { return scale * (2 * product - scale * square); }
};

// ---- Scales side by side ---------------------------------------------------------------------

// The sums of kScales scales, [kScales] each.
template <int kScales>
struct LanesOfSums {
  alignas(64) float products[kScales];
  alignas(64) float squares[kScales];

  LevelSums At(int k) const { return {products[k], squares[k]}; }
};

// kScales: a multiple of 16. Values are multiplied by inverses[k] in lane k.
template <int kScales, class NearestOf>
LanesOfSums<kScales> SumInLanes(const LevelSamples& x, const float (&inverses)[kScales],
                                NearestOf nearest_of) {
  constexpr int kVectors = kScales / kWidth;
  Floats products[kVectors] = {};
  Floats squares[kVectors] = {};
  for (int i = 0; i < x.count; ++i) {
    const Floats value = Splat(x.values[i]);
    const Floats weight = Splat(x.weights[i]);
    const Floats weighted = Splat(x.weighted[i]);
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; ++k) {
      const Floats level = nearest_of(value * Load(inverses + k * kWidth), k);
      products[k] += weighted * level;
      squares[k] += weight * level * level;
    }
  }
  LanesOfSums<kScales> sums;
  std::memcpy(sums.products, products, sizeof(products));
  std::memcpy(sums.squares, squares, sizeof(squares));
  return sums;
}

// The numbers of lanes, and how far scales of the last round of a search are from its middle one.
struct LaneNumbers {
  alignas(64) int32_t numbers[64];
  constexpr LaneNumbers() : numbers{} {
    for (int k = 0; k < 64; ++k) numbers[k] = k;
  }
};
constexpr LaneNumbers kLaneNumbers;

inline Ints LanesFrom(int first) {
  Ints lanes;
  std::memcpy(&lanes, kLaneNumbers.numbers + first, sizeof(lanes));
  return lanes;
}

// Eight lanes of two groups each: `lower` in lanes 0 to 7, `upper` in lanes 8 to 15.
struct TwoGroups {
  LevelSamples lower;
  LevelSamples upper;  // with as many values

  // Number i of one of the samples' arrays, for the lanes from `lane` on.
  Floats Splat(const float* LevelSamples::*array, int i, int lane) const {
    const float of_lower = (lower.*array)[i];
    const float of_upper = (upper.*array)[i];
    if constexpr (kWidth > 8) {
      return LanesFrom(0) < 8 ? of_lower - Floats{} : of_upper - Floats{};
    } else {
      return (lane < 8 ? of_lower : of_upper) - Floats{};
    }
  }
};

template <class NearestOf>
LanesOfSums<16> SumInLanes(const TwoGroups& groups, const float (&inverses)[16],
                           NearestOf nearest_of) {
  LanesOfSums<16> sums;
  for (int k = 0; k < 16; k += kWidth) {
    const Floats inverse = Load(inverses + k);
    Floats product{};
    Floats square{};
    for (int i = 0; i < groups.lower.count; ++i) {
      const Floats value = groups.Splat(&LevelSamples::values, i, k);
      const Floats level = nearest_of(value * inverse, k / kWidth);
      product += groups.Splat(&LevelSamples::weighted, i, k) * level;
      square += groups.Splat(&LevelSamples::weights, i, k) * level * level;
    }
    Store(sums.products + k, product);
    Store(sums.squares + k, square);
  }
  return sums;
}

template <int kCount>
LanesOfSums<16> SumLevels(const Levels<kCount>& levels, const TwoGroups& groups,
                          const float (&inverses)[16]) {
  return SumInLanes(groups, inverses,
                    [&levels](Floats y, int /*vector*/) { return levels.Nearest(y); });
}

template <int kCount, int kScales>
LanesOfSums<kScales> SumLevels(const Levels<kCount>& levels, const LevelSamples& x,
                               const float (&inverses)[kScales]) {
  return SumInLanes(x, inverses, [&levels](Floats y, int /*vector*/) { return levels.Nearest(y); });
}

// Gains as integers in the order of the gains, without their last bits, which hold the number of
// the lane: of equal gains the first lane is greater, and NaN is less than all numbers.
template <int kScales>
struct RankedGains {
  Ints keys[kScales / kWidth];

  explicit RankedGains(const float (&gains)[kScales]) {
    for (int k = 0; k < kScales; k += kWidth) {
      const Floats gain = Load(gains + k);
      const Ints bits = reinterpret_cast<Ints>(gain);
      const Ints ordered = (bits ^ (bits >> 31 & 0x7fffffff)) & -kScales;
      const Ints order = (kScales - 1) - LanesFrom(k);
      keys[k / kWidth] =
          gain == gain ? ordered | order : order + std::numeric_limits<int32_t>::min();
    }
  }

  // Every key becomes the greatest of the keys whose numbers differ in the bits kFirst, kFirst / 2,
  // .. kLast.
  template <int kFirst, int kLast>
  void KeepGreatest() {
    if constexpr (kFirst >= kLast) {
      for (int i = 0; i < kScales / kWidth; ++i) {
        if constexpr (kFirst >= kWidth) {
          constexpr int kApart = kFirst / kWidth;
          if ((i & kApart) == 0) keys[i] = keys[i + kApart] = Greater(keys[i], keys[i + kApart]);
        } else {
          keys[i] = Greater(keys[i], Exchange<kFirst>(keys[i]));
        }
      }
      KeepGreatest<kFirst / 2, kLast>();
    }
  }
  // The lane with the key in place of lane `at`.
  int Lane(int at) const { return kScales - 1 - (keys[at / kWidth][at % kWidth] & (kScales - 1)); }

 private:
  static Ints Greater(Ints a, Ints b) { return a > b ? a : b; }
};

// The lanes with the greatest gains: lanes[u] is one of u, u + kOf, u + 2 kOf, .. kScales, which is
// a power of two.
template <int kScales, int kOf>
void FindGreatest(const float (&gains)[kScales], int (&lanes)[kOf]) {
  RankedGains<kScales> ranked(gains);
  ranked.template KeepGreatest<kScales / 2, kOf>();
  for (int u = 0; u < kOf; ++u) lanes[u] = ranked.Lane(u);
}

// The lane with the greatest gain among the first 16 / kOf lanes, among the next 16 / kOf and so
// on.
template <int kOf>
void FindGreatestOfParts(const float (&gains)[16], int (&lanes)[kOf]) {
  RankedGains<16> ranked(gains);
  ranked.template KeepGreatest<16 / kOf / 2, 1>();
  for (int part = 0; part < kOf; ++part) lanes[part] = ranked.Lane(16 / kOf * part);
}

struct LevelScale {
  float scale = 0;
  float gain = 0;
};

// The gains of the lanes' levels, each lane with the scale that is best for its levels.
template <int kScales>
struct GainsOf {
  alignas(64) float gains[kScales];

  explicit GainsOf(const LanesOfSums<kScales>& sums) {
    for (int k = 0; k < kScales; k += kWidth) {
      const Floats product = Load(sums.products + k);
      const Floats square = Load(sums.squares + k);
      Store(gains + k, square > 0.0f ? product * product / square : Floats{});
    }
  }
};

// Replaces `best` by the lane with the greatest gain, where that is greater. Returns the lane, or
// -1.
template <int kScales>
int KeepBest(const LanesOfSums<kScales>& sums, LevelScale& best) {
  const GainsOf<kScales> of(sums);
  int lanes[1];
  FindGreatest(of.gains, lanes);
  if (!(of.gains[lanes[0]] > best.gain)) return -1;
  best = {sums.At(lanes[0]).BestScale(), of.gains[lanes[0]]};
  return lanes[0];
}

// inverses[k] = the inverse of a scale, times 1 + `step` times -kCount / 2, .. kCount / 2 - 1.
template <int kCount>
void PutAround(float scale, float step, float* inverses) {
  const float inverse = 1 / scale;
  const float step_of_inverse = inverse * step;
  for (int k = 0; k < kCount; ++k) {
    inverses[k] = static_cast<float>(k - kCount / 2) * step_of_inverse + inverse;
  }
}

// The best of the scales magnitude / target for the given targets, after least squares.
template <int kCount, int kTargets>
LevelScale SearchLevelScale(const Levels<kCount>& levels, const LevelSamples& x, float magnitude,
                            const float (&targets)[kTargets]) {
  LevelScale best;
  alignas(64) float inverses[kTargets];
  const float inverse = 1 / magnitude;
  for (int k = 0; k < kTargets; ++k) inverses[k] = targets[k] * inverse;
  KeepBest(SumLevels(levels, x, inverses), best);
  return best;
}

// The best of the scales magnitude / target for the given targets and of scales around the best of
// the even targets and of the odd ones, `step` of that scale apart.
template <int kCount, int kTargets>
LevelScale SearchLevelScale(const Levels<kCount>& levels, const LevelSamples& x, float magnitude,
                            const float (&targets)[kTargets], float step) {
  alignas(64) float inverses[kTargets];
  const float inverse = 1 / magnitude;
  for (int k = 0; k < kTargets; ++k) inverses[k] = targets[k] * inverse;
  const LanesOfSums<kTargets> sums = SumLevels(levels, x, inverses);
  int lanes[2];
  const GainsOf<kTargets> of(sums);
  FindGreatest(of.gains, lanes);
  LevelScale best;
  alignas(64) float around[16];
  for (int k = 0; k < 2; ++k) {
    const float scale = sums.At(lanes[k]).BestScale();
    PutAround<8>(scale == 0 ? magnitude / targets[k] : scale, step, around + 8 * k);
  }
  KeepBest(sums, best);
  KeepBest(SumLevels(levels, x, around), best);
  return best;
}
