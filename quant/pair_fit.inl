// The fit of quant/iq2_kl.h, whose codes stand for pairs of levels: what the searches of
// quant/shifted_fit.inl, which is included before, need to know of it.

// There is no shift.
struct PairSearch {
  static constexpr int kShifts = 1;
  static constexpr int kTargets = 16;
  float shift = 0;
  float targets[kTargets] = {-50, -56, -62, -68, -74, -80, -86, -91,
                             38,  43,  47,  51,  55,  59,  63,  67};
  float step = 0.01f;
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

template <int kScales>
LanesOfSums<kScales> SumShifted(const PairSearch& /*search*/, const LevelSamples& x,
                                const float (& /*shifts*/)[kScales],
                                const float (&inverses)[kScales]) {
  const SixteenPairs pairs(x);
  LanesOfSums<kScales> sums;
  for (int k = 0; k < kScales; ++k) {
    LaneSum product;
    LaneSum square;
    for (int i = 0; i < 16; i += kWidth) {
      const NearestPoints nearest(pairs, i, inverses[k]);
      const Floats weighted_x = Load(pairs.x_weights + i) * nearest.x;
      const Floats weighted_y = Load(pairs.y_weights + i) * nearest.y;
      product.Add(i, weighted_x * Load(pairs.x + i) + weighted_y * Load(pairs.y + i));
      square.Add(i, weighted_x * nearest.x + weighted_y * nearest.y);
    }
    sums.products[k] = product.Total();
    sums.squares[k] = square.Total();
  }
  return sums;
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
