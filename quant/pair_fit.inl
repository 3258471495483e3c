// The fit of quant/iq2_kl.h, whose codes stand for pairs of levels: what the searches of
// quant/shifted_row_fit.inl, which is included before, need to know of it.

// There is no shift.
struct PairSearch {
  static constexpr int kShifts = 1;
  static constexpr int kRowUnits = 2;
  static constexpr int kTargets = 16;
  float shift = 0;
  float targets[kTargets] = {-50, -56, -62, -68, -74, -80, -86, -91,
                             36,  41,  46,  50,  55,  59,  63,  67};
  float parts[kUnitsTogether] = {1.0f, 0.96f, 0.92f, 0.88f};
};
constexpr PairSearch kPairSearch;
constexpr int kPairPoints = 32;

// The points, coordinate by coordinate.
struct PairPoints {
  float x[kPairPoints] = {};
  float y[kPairPoints] = {};
  constexpr PairPoints() {
    for (int p = 0; p < kPairPoints; ++p) {
      x[p] = kLevelPairs[p][0];
      y[p] = kLevelPairs[p][1];
    }
  }
};
constexpr PairPoints kPairPointTable;

// The first and the second values of 16 pairs, and their weights.
struct SixteenPairs {
  alignas(64) float x[16];
  alignas(64) float y[16];
  alignas(64) float x_weights[16];
  alignas(64) float y_weights[16];

  explicit SixteenPairs(const LevelSamples& samples) {
    for (int k = 0; k < 16; ++k) {
      x[k] = samples.values[2 * k];
      y[k] = samples.values[2 * k + 1];
      x_weights[k] = samples.weights[2 * k];
      y_weights[k] = samples.weights[2 * k + 1];
    }
  }
};

// Of kWidth pairs: the nearest points, the first of equals, and their numbers.
struct NearestPoints {
  Floats x, y, number;

  NearestPoints(const SixteenPairs& pairs, int k, float inverse) {
    // Far outside of the points only the direction counts, and squares stay finite.
    const Floats bound = Splat(4096.0f);
    const Floats value_x = Max(Min(Load(pairs.x + k) * Splat(inverse), bound), -bound);
    const Floats value_y = Max(Min(Load(pairs.y + k) * Splat(inverse), bound), -bound);
    const Floats weight_x = Load(pairs.x_weights + k);
    const Floats weight_y = Load(pairs.y_weights + k);
    Floats least = Splat(std::numeric_limits<float>::max());
    x = y = number = Floats{};
    for (int p = 0; p < kPairPoints; ++p) {
      const Floats dx = value_x - Splat(kPairPointTable.x[p]);
      const Floats dy = value_y - Splat(kPairPointTable.y[p]);
      const Floats error = weight_x * dx * dx + weight_y * dy * dy;
      const auto nearer = error < least;
      least = nearer ? error : least;
      x = nearer ? Splat(kPairPointTable.x[p]) : x;
      y = nearer ? Splat(kPairPointTable.y[p]) : y;
      number = nearer ? Splat(static_cast<float>(p)) : number;
    }
  }
};

// The points in the order of their first levels: those with the level k are seconds[starts[k]] to
// seconds[starts[k + 1]], numbers of their second ones.
struct PairsByLevel {
  alignas(64) float levels[8] = {-63, -40, -23, -10, 1, 13, 28, 47};
  int starts[9] = {};
  int seconds[kPairPoints] = {};
  constexpr PairsByLevel() {
    int count = 0;
    for (int k = 0; k < 8; ++k) {
      starts[k] = count;
      for (const auto& point : kLevelPairs) {
        if (point[0] != static_cast<int>(levels[k])) continue;
        while (static_cast<int>(levels[seconds[count]]) != point[1]) ++seconds[count];
        ++count;
      }
    }
    starts[8] = count;
  }
};
constexpr PairsByLevel kPairsByLevel;
static_assert(kPairsByLevel.starts[8] == kPairPoints);

// The nearest points to one pair in units of scales side by side. Errors are compared without their
// last three bits, which hold the number of the second level.
struct NearestInLanes {
  Floats x, y;

  NearestInLanes(Floats value_x, Floats value_y, Floats weight_x, Floats weight_y) {
    // Far outside of the points only the direction counts, and squares stay finite.
    const Floats bound = Splat(4096.0f);
    value_x = Max(Min(value_x, bound), -bound);
    value_y = Max(Min(value_y, bound), -bound);
    Floats errors[8];
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      const Floats difference = value_y - kPairsByLevel.levels[k];
      const Floats error = weight_y * difference * difference;
      errors[k] = reinterpret_cast<Floats>((reinterpret_cast<Ints>(error) & ~7) | k);
    }
    Floats least = Splat(std::numeric_limits<float>::max());
    Floats second{};
    x = Floats{};
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      Floats of_level = errors[kPairsByLevel.seconds[kPairsByLevel.starts[k]]];
#pragma GCC unroll 8
      for (int p = kPairsByLevel.starts[k] + 1; p < kPairsByLevel.starts[k + 1]; ++p) {
        of_level = Min(errors[kPairsByLevel.seconds[p]], of_level);
      }
      const Floats difference = value_x - kPairsByLevel.levels[k];
      const Floats error = weight_x * difference * difference + of_level;
      const auto nearer = error < least;
      least = nearer ? error : least;
      second = nearer ? of_level : second;
      x = nearer ? Splat(kPairsByLevel.levels[k]) : x;
    }
    y = LookUp<Floats>(kPairsByLevel.levels, reinterpret_cast<Ints>(second) & 7);
  }
};

// of(array, i, lane): number i of an array of samples, for the lanes from `lane` on.
template <class Of>
LanesOfSums<16> SumPairs(int count, const float (&inverses)[16], Of of) {
  LanesOfSums<16> sums;
  for (int k = 0; k < 16; k += kWidth) {
    const Floats inverse = Load(inverses + k);
    Floats product{};
    Floats square{};
    for (int i = 0; i < count; i += 2) {
      const Floats weight_x = of(&LevelSamples::weights, i, k);
      const Floats weight_y = of(&LevelSamples::weights, i + 1, k);
      const NearestInLanes nearest(of(&LevelSamples::values, i, k) * inverse,
                                   of(&LevelSamples::values, i + 1, k) * inverse, weight_x,
                                   weight_y);
      product += of(&LevelSamples::weighted, i, k) * nearest.x +
                 of(&LevelSamples::weighted, i + 1, k) * nearest.y;
      square += weight_x * nearest.x * nearest.x + weight_y * nearest.y * nearest.y;
    }
    Store(sums.products + k, product);
    Store(sums.squares + k, square);
  }
  return sums;
}

inline LanesOfSums<16> SumShifted(const PairSearch& /*search*/, const TwoGroups& groups,
                                  const float (& /*shifts*/)[16], const float (&inverses)[16]) {
  return SumPairs(groups.lower.count, inverses,
                  [&groups](const float* LevelSamples::*array, int i, int lane) {
                    return groups.Splat(array, i, lane);
                  });
}
inline LanesOfSums<16> SumShifted(const PairSearch& /*search*/, const LevelSamples& x,
                                  const float (& /*shifts*/)[16], const float (&inverses)[16]) {
  return SumPairs(x.count, inverses, [&x](const float* LevelSamples::*array, int i, int /*lane*/) {
    return Splat((x.*array)[i]);
  });
}

inline void StoreShifted(const PairSearch& /*search*/, const LevelSamples& x, float scale,
                         bool /*shifted*/, uint8_t* codes) {
  const SixteenPairs pairs(x);
  for (int k = 0; k < 16; k += kWidth) {
    const NearestPoints nearest(pairs, k, InverseOrZero(scale));
    float numbers[kWidth];
    Store(numbers, nearest.number);
    for (int lane = 0; lane < kWidth; ++lane) codes[k + lane] = static_cast<uint8_t>(numbers[lane]);
  }
}

inline uint8_t NearestToZero(const PairSearch& /*search*/) {
  for (int p = 0; p < kPairPoints; ++p) {
    if (kLevelPairs[p][0] == 1 && kLevelPairs[p][1] == 1) return static_cast<uint8_t>(p);
  }
  return 0;
}

constexpr GroupScales kScalesOfIq2Kl = {32, -32, 31, 1};

inline ShiftedRowFit SearchIq2Kl(const float* values, const float* importance, int64_t count) {
  return SearchShiftedRow<HalfHead>(kPairSearch, kScalesOfIq2Kl, values, importance, count);
}
