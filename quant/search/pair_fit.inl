// The fit of quant/formats/iq2_kl.h, whose codes stand for pairs of levels, included after
// quant/search/shifted_row_fit.inl. What the points that are nearest at some scales would leave at
// others is a parabola for each of them. So the nearest points are looked for at a few scales of a
// group, and then only at the two multiples of the row's factor where the least of the parabolas is
// least.

// The search places the value of largest magnitude at kPairTargets.
constexpr float kPairTargets[16] = {-50, -56, -62, -68, -74, -80, -86, -91,
                                    36,  41,  46,  50,  55,  59,  63,  67};
// Factors of a row are tried of which the group of largest scale takes so much of the farthest
// multiple.
constexpr int kPairUnits = 4;
constexpr float kPairParts[kPairUnits] = {1.0f, 0.96f, 0.92f, 0.88f};
constexpr int kPairPoints = 32;
constexpr int kPairGroup = 32;  // values
constexpr int kPairGroups = 256 / kPairGroup;
constexpr float kPairScaleMin = -32;
constexpr float kPairScaleMax = 31;

// The points in the order of their first levels: the points with the first level k are
// seconds[starts[k]] to seconds[starts[k + 1]], which are the numbers of their second levels.
struct PairsByLevel {
  alignas(64) float levels[8] = {-63, -40, -23, -10, 1, 13, 28, 47};
  int starts[9] = {};
  int seconds[kPairPoints] = {};
  uint8_t points[64] = {};  // of the levels' numbers, the first one times 8
  constexpr PairsByLevel() {
    int count = 0;
    for (int k = 0; k < 8; ++k) {
      starts[k] = count;
      for (int p = 0; p < kPairPoints; ++p) {
        if (kLevelPairs[p][0] != static_cast<int>(levels[k])) continue;
        while (static_cast<int>(levels[seconds[count]]) != kLevelPairs[p][1]) ++seconds[count];
        points[8 * k + seconds[count++]] = static_cast<uint8_t>(p);
      }
    }
    starts[8] = count;
  }
};
constexpr PairsByLevel kPairsByLevel;
static_assert(kPairsByLevel.starts[8] == kPairPoints);

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

// The nearest points to pairs of values, a pair in each lane, from what the levels of their first
// and second values add to the error. Errors are compared without their last bits, which hold the
// numbers of the levels.
struct NearestPoints {
  Floats x, y;
  Ints levels;  // the first one's number times 8, and the second's

  // error_x(k), error_y(k): of level k.
  template <class ErrorX, class ErrorY>
  NearestPoints(ErrorX error_x, ErrorY error_y) {
    Floats errors[8];
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) errors[k] = Marked(error_y(k), Ints{} + k);
    Floats least = Splat(std::numeric_limits<float>::max());
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      Floats of_level = errors[kPairsByLevel.seconds[kPairsByLevel.starts[k]]];
#pragma GCC unroll 8
      for (int p = kPairsByLevel.starts[k] + 1; p < kPairsByLevel.starts[k + 1]; ++p) {
        of_level = Min(errors[kPairsByLevel.seconds[p]], of_level);
      }
      const Floats error = Marked(error_x(k) + of_level, reinterpret_cast<Ints>(of_level));
      least = Min(reinterpret_cast<Floats>(reinterpret_cast<Ints>(error) | (8 * k)), least);
    }
    levels = reinterpret_cast<Ints>(least) & 63;
    x = LookUp<Floats>(kPairsByLevel.levels, levels >> 3);
    y = LookUp<Floats>(kPairsByLevel.levels, levels & 7);
  }

 private:
  // An error whose last six bits are those of `mark`.
  static Floats Marked(Floats error, Ints mark) {
    return reinterpret_cast<Floats>(SelectBits(Ints{} + 63, mark, reinterpret_cast<Ints>(error)));
  }
};

// The error that a level adds for a value.
inline Floats PairError(int level, Floats value, Floats weight) {
  const Floats difference = value - kPairsByLevel.levels[level];
  return weight * difference * difference;
}

// The sums of a group's points at the scales of the targets, and the scale that would fit the best
// of these points best.
struct PairGroup {
  LanesOfSums<16> sums{};  // of the targets
  float ideal = 0;

  PairGroup() = default;
  PairGroup(const LevelSamples& x, float peak) {
    for (int k = 0; k < 16; k += kWidth) {
      const Floats inverse = Load(kPairTargets + k) / peak;
      Floats product{};
      Floats square{};
      for (int i = 0; i < kPairGroup; i += 2) {
        const Floats value_x = x.values[i] * inverse;
        const Floats value_y = x.values[i + 1] * inverse;
        const Floats weight_x = Splat(x.weights[i]);
        const Floats weight_y = Splat(x.weights[i + 1]);
        const NearestPoints nearest([&](int level) { return PairError(level, value_x, weight_x); },
                                    [&](int level) { return PairError(level, value_y, weight_y); });
        product += x.weighted[i] * nearest.x + x.weighted[i + 1] * nearest.y;
        square += weight_x * nearest.x * nearest.x + weight_y * nearest.y * nearest.y;
      }
      Store(sums.products + k, product);
      Store(sums.squares + k, square);
    }
    LevelScale best;
    KeepBest(sums, best);
    ideal = best.scale;
  }
};

// A multiple of a factor, and the sums of the group's points that fit it best.
struct PairGuess {
  float scale;
  LevelSums sums;
};

// Sixteen multiples about the ideal one, as many of each unit in turn: guesses[i] is the best of
// number i, i + kGuesses, ..
template <int kUnits, int kGuesses>
void GuessScales(const PairGroup& group, const float (&units)[kUnits],
                 PairGuess (&guesses)[kGuesses]) {
  static_assert(kGuesses % kUnits == 0);
  constexpr int kMultiples = 16 / kUnits;
  alignas(64) float units_of_lanes[16];
  for (int lane = 0; lane < 16; ++lane) units_of_lanes[lane] = units[lane % kUnits];
  alignas(64) float scales[16];
  alignas(64) float gains[16];
  LanesOfSums<16> best;
  for (int k = 0; k < 16; k += kWidth) {
    const Floats unit = Load(units_of_lanes + k);
    const Floats in_units = Sizes(unit) >= 0x1p-126f ? 1.0f / unit : Floats{};
    const Floats last = Splat(kPairScaleMax - kPairScaleMin);
    const Floats below = Max(Min(group.ideal * in_units - kPairScaleMin, last), Floats{});
    const Ints multiple = LanesFrom(k) / kUnits - (kMultiples / 2 - 1);
    const Floats number =
        __builtin_convertvector(__builtin_convertvector(below, Ints) + multiple, Floats);
    const Floats scale = Max(Min(number, last), Floats{}) + kPairScaleMin;
    const Floats in_unit = scale * unit;
    Floats gain = Splat(-std::numeric_limits<float>::infinity());
    Floats product{};
    Floats square{};
    for (int t = 0; t < 16; ++t) {
      const Floats of_product = Splat(group.sums.products[t]);
      const Floats of_square = Splat(group.sums.squares[t]);
      const Floats of_target = in_unit * (of_product + of_product - in_unit * of_square);
      const auto greater = of_target > gain;
      gain = greater ? of_target : gain;
      product = greater ? of_product : product;
      square = greater ? of_square : square;
    }
    Store(scales + k, scale);
    Store(gains + k, gain);
    Store(best.products + k, product);
    Store(best.squares + k, square);
  }
  int lanes[kGuesses];
  FindGreatest(gains, lanes);
  for (int i = 0; i < kGuesses; ++i) guesses[i] = {scales[lanes[i]], best.At(lanes[i])};
}

// Sums over a row in units of its factor, in double precision, because its blocks may differ in
// size by any power of two.
struct PairRowSums {
  double product = 0;
  double square = 0;

  void Add(const RowBlock& block, float scale, const LevelSums& sums) {
    product += block.heaviest * block.size * double{scale} * double{sums.product};
    square += block.heaviest * double{scale} * double{scale} * double{sums.square};
  }
  double Gain(float d) const { return double{d} * (2 * product - double{d} * square); }
  float BestFactor() const { return StoredFactor<HalfHead>(product / square); }
};

struct PairRow {
  std::vector<RowBlock> blocks;
  std::vector<PairGroup> groups;  // kPairGroups of each block

  LevelSamples Samples(size_t g) const {
    return blocks[g / kPairGroups].Group(static_cast<int>(g % kPairGroups), kPairGroup);
  }
};

inline PairRow LookAtRow(const float* values, const float* importance, int64_t count) {
  PairRow row;
  row.blocks.reserve(static_cast<size_t>(count / 256));
  for (int64_t i = 0; i < count; i += 256) {
    row.blocks.emplace_back(values + i, importance == nullptr ? nullptr : importance + i);
  }
  row.groups.resize(row.blocks.size() * kPairGroups);
  for (size_t g = 0; g < row.groups.size(); ++g) {
    if (row.blocks[g / kPairGroups].unit.all_zero) continue;
    const LevelSamples x = row.Samples(g);
    const float peak = PeakOf(x);
    if (std::fabs(peak) >= 0x1p-60f) row.groups[g] = PairGroup(x, peak);
  }
  return row;
}

// The factor of a row with which its groups' parabolas leave least; 0 for a row of zeros.
inline float GuessFactor(const PairRow& row) {
  double largest = 0;
  for (size_t g = 0; g < row.groups.size(); ++g) {
    const double scale = row.blocks[g / kPairGroups].size * double{row.groups[g].ideal};
    if (std::fabs(scale) > std::fabs(largest)) largest = scale;
  }
  if (largest == 0) return 0;
  float factors[kPairUnits];
  PairRowSums sums[kPairUnits];
  for (int u = 0; u < kPairUnits; ++u) {
    factors[u] = StoredFactor<HalfHead>(largest / double{kPairParts[u]} / double{kPairScaleMin});
  }
  for (size_t g = 0; g < row.groups.size(); ++g) {
    if (row.groups[g].ideal == 0) continue;
    const RowBlock& block = row.blocks[g / kPairGroups];
    float units[kPairUnits];
    for (int u = 0; u < kPairUnits; ++u) units[u] = block.InUnit(factors[u]);
    PairGuess guesses[kPairUnits];
    GuessScales(row.groups[g], units, guesses);
    for (int u = 0; u < kPairUnits; ++u) sums[u].Add(block, guesses[u].scale, guesses[u].sums);
  }
  int at = 0;
  for (int u = 1; u < kPairUnits; ++u)
    at = sums[u].Gain(factors[u]) > sums[at].Gain(factors[at]) ? u : at;
  return sums[at].square > 0 ? sums[at].BestFactor() : factors[at];
}

// A group's scale, codes, and their sums.
struct PairFit {
  float scale = 0;
  float gain = 0;
  LevelSums sums;
  alignas(64) int32_t levels[16];  // as those of NearestPoints

  PairFit() { std::fill_n(levels, 16, 4 * 8 + 4); }  // the pair next to zero

  // Takes the scale multiple * unit, and the points nearest at that scale, where they gain more.
  void Try(const SixteenPairs& pairs, float multiple, float unit) {
    const float in_unit = multiple * unit;
    const Floats inverse = Splat(InverseOrZero(in_unit));
    LaneSum products;
    LaneSum squares;
    alignas(64) int32_t numbers[16];
    for (int k = 0; k < 16; k += kWidth) {
      const Floats x = Load(pairs.x + k);
      const Floats y = Load(pairs.y + k);
      const Floats weight_x = Load(pairs.x_weights + k);
      const Floats weight_y = Load(pairs.y_weights + k);
      const Floats value_x = InReach(x * inverse);
      const Floats value_y = InReach(y * inverse);
      const NearestPoints nearest([&](int level) { return PairError(level, value_x, weight_x); },
                                  [&](int level) { return PairError(level, value_y, weight_y); });
      const Floats weighted_x = weight_x * nearest.x;
      const Floats weighted_y = weight_y * nearest.y;
      products.Add(k, weighted_x * x + weighted_y * y);
      squares.Add(k, weighted_x * nearest.x + weighted_y * nearest.y);
      std::memcpy(numbers + k, &nearest.levels, sizeof(nearest.levels));
    }
    const LevelSums found = {products.Total(), squares.Total()};
    if (!(found.Gain(in_unit) > gain)) return;
    scale = multiple;
    gain = found.Gain(in_unit);
    sums = found;
    std::copy_n(numbers, 16, levels);
  }
};

inline ShiftedRowFit SearchIq2Kl(const float* values, const float* importance, int64_t count) {
  const PairRow row = LookAtRow(values, importance, count);
  ShiftedRowFit fit{GuessFactor(row), std::vector<ShiftedFit>(row.blocks.size())};
  PairRowSums sums;
  for (size_t g = 0; g < row.groups.size(); ++g) {
    const RowBlock& block = row.blocks[g / kPairGroups];
    const size_t of_block = g % kPairGroups;
    PairFit best;
    if (row.groups[g].ideal != 0) {
      const float unit[] = {block.InUnit(fit.d)};
      PairGuess guesses[2];
      GuessScales(row.groups[g], unit, guesses);
      const SixteenPairs pairs(row.Samples(g));
      for (const PairGuess& guess : guesses) best.Try(pairs, guess.scale, unit[0]);
      sums.Add(block, best.scale, best.sums);
    }
    ShiftedFit& stored = fit.blocks[g / kPairGroups];
    stored.scales[of_block] = static_cast<int16_t>(best.scale);
    for (size_t k = 0; k < 16; ++k) {
      stored.codes[of_block * kPairGroup + k] = kPairsByLevel.points[best.levels[k]];
    }
  }
  if (sums.square > 0 && sums.Gain(sums.BestFactor()) > sums.Gain(fit.d)) {
    fit.d = sums.BestFactor();
  }
  return fit;
}
