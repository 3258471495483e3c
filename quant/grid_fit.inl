// The fits of quant/grid_fit.h, included after quant/grid_search.inl: groups look for their best
// scale alone, then the block's unit d is chosen for all, then every group takes the multiple of d
// that leaves the least error, and d is fitted to what was chosen.

template <GridRule kRuleValue, int kDimsValue, int kCountValue, int kGroupValuesValue,
          int kScalesValue>
struct GridShape {
  static constexpr GridRule kRule = kRuleValue;
  static constexpr int kDims = kDimsValue;
  static constexpr int kCount = kCountValue;
  static constexpr int kGroup = kGroupValuesValue;  // values that share a scale
  static constexpr int kScales = kScalesValue;  // multiples 1, 3, .., 2 * kScales - 1 of the unit
  static constexpr int kVectors = kGroup / kDims;
  static constexpr int kGroups = 256 / kGroup;
  const Grid<kDims, kCount>& grid;
  float unit;       // of the scales: d * unit
  float code_size;  // typical root mean square of the codes of a well-fitted vector

  using Search = GroupSearch<kRule, kDims, kCount, kVectors>;
};

// Scales to start from, relative to the one that gives codes the typical size.
constexpr float kStarts[] = {0.55f, 0.67f, 0.8f, 0.93f, 1.08f, 1.25f, 1.5f, 1.8f};
constexpr int kStartCount = 8;

struct GroupIdeal {
  float scale;
  float square;  // the curvature of the error around it
};

template <class Shape>
GroupIdeal FindIdeal(const Shape& shape, const typename Shape::Search& search, const float* values,
                     const float* weights) {
  float squares = 0;
  float sum = 0;
  for (int i = 0; i < Shape::kGroup; ++i) {
    squares += weights[i] * values[i] * values[i];
    sum += weights[i];
  }
  const float size = std::sqrt(squares / sum) / shape.code_size;
  if (size < 0x1p-60f) return {0, 0};
  float scales[kStartCount];
  float changes[kStartCount];
  for (int i = 0; i < kStartCount; ++i) scales[i] = size * kStarts[i];
  search.LeastChanges(scales, changes);
  const float start = scales[std::min_element(changes, changes + kStartCount) - changes];
  GroupPoints points = search.Nearest(start);
  points = search.Nearest(std::max(points.BestScale(), 0x1p-60f));
  return {points.BestScale(), points.square};
}

// The number s of the multiple 2 s + 1 that is nearest to `ratio`.
inline int NearestMultiple(float ratio, int scales) {
  const float s =
      std::clamp(0.5f * (ratio - 1) + 0.5f, 0.0f, static_cast<float>(scales - 1) + 0.5f);
  return static_cast<int>(s);
}

// The unit whose multiples come nearest to the ideals, from a row of candidates.
template <class Shape>
float ChooseUnit(const GroupIdeal* ideals) {
  constexpr int kCandidates = 64;
  constexpr float kTop = 2 * Shape::kScales - 1;
  float largest = 0;
  for (int g = 0; g < Shape::kGroups; ++g) largest = std::max(largest, ideals[g].scale);
  if (largest == 0) return 0;
  float best_unit = largest / kTop;
  float best_error = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kCandidates; ++i) {
    const float multiple = kTop * (1.15f - 0.55f * static_cast<float>(i) / kCandidates);
    const float inverse = multiple / largest;
    const float unit = 1 / inverse;
    float error = 0;
    for (int g = 0; g < Shape::kGroups; ++g) {
      const int s = NearestMultiple(ideals[g].scale * inverse, Shape::kScales);
      const float difference = unit * static_cast<float>(2 * s + 1) - ideals[g].scale;
      error += ideals[g].square * difference * difference;
    }
    if (error < best_error) {
      best_error = error;
      best_unit = unit;
    }
  }
  return best_unit;
}

struct GroupFit {
  int scale;
  GroupPoints points;
};

// The multiple of `unit` that leaves the least error: the nearest to the ideal or a neighbour.
template <class Shape>
GroupFit FitGroup(const typename Shape::Search& search, float unit, float ideal) {
  const int middle = NearestMultiple(ideal / unit, Shape::kScales);
  int candidates[3];
  float scales[3];
  float changes[3];
  for (int i = 0; i < 3; ++i) {
    candidates[i] = std::clamp(middle - 1 + i, 0, Shape::kScales - 1);
    scales[i] = unit * static_cast<float>(2 * candidates[i] + 1);
  }
  search.LeastChanges(scales, changes);
  const auto best = std::min_element(changes, changes + 3) - changes;
  return {candidates[best], search.Nearest(scales[best])};
}

// The signs of the eight values from `values` on, for points chosen with or without a changed sign:
// the sign that costs least gives way.
template <class Shape>
uint8_t StoredSigns(const Shape& shape, const float* values, const float* weights,
                    const GroupPoints& points, int first_vector) {
  int signs = 0;
  for (int j = 0; j < 8; ++j) signs |= std::signbit(values[j]) << j;
  if (std::popcount(static_cast<unsigned>(signs)) % 2 == 0) return static_cast<uint8_t>(signs);
  if (Shape::kRule == GridRule::kFreeSigns) return static_cast<uint8_t>(signs);
  int changed = 0;
  float least = std::numeric_limits<float>::infinity();
  for (int j = 0; j < 8; ++j) {
    const int vector = first_vector + j / Shape::kDims;
    if (Shape::kRule == GridRule::kEvenSignPairs && points.variants[vector] == 0) continue;
    const float code = shape.grid.points[points.points[vector]][j % Shape::kDims];
    const float cost = weights[j] * std::fabs(values[j]) * code;
    if (cost < least) {
      least = cost;
      changed = j;
    }
  }
  return static_cast<uint8_t>(signs ^ 1 << changed);
}

template <class Shape>
void StoreGroup(const Shape& shape, const UnitValues& block, int g, const GroupFit& group,
                GridFit& fit) {
  fit.scales[g] = static_cast<uint8_t>(group.scale);
  const int first = g * Shape::kVectors;
  std::copy_n(group.points.points, Shape::kVectors, fit.points + first);
  for (int i = 0; i < Shape::kGroup; i += 8) {
    const int at = g * Shape::kGroup + i;
    if constexpr (IsShift(Shape::kRule)) {
      fit.minus[at / 8] = group.points.variants[i / 8] != 0;
    } else {
      fit.signs[at / 8] =
          StoredSigns(shape, block.values + at, block.weights + at, group.points, i / Shape::kDims);
    }
  }
}

// Rounds of: points for the unit, the unit for the points.
constexpr int kUnitRounds = 2;

template <class Shape>
GridFit SearchGrid(const Shape& shape, const float* values, const float* importance) {
  const UnitValues block(values, importance, 256);
  if (block.all_zero) return {};
  constexpr int kGroups = Shape::kGroups;
  typename Shape::Search search;
  auto prepare = [&](int g) {
    search.Prepare(shape.grid, block.values + g * Shape::kGroup, block.weights + g * Shape::kGroup);
  };

  GroupIdeal ideals[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    prepare(g);
    ideals[g] = FindIdeal(shape, search, block.values + g * Shape::kGroup,
                          block.weights + g * Shape::kGroup);
  }
  float unit = ChooseUnit<Shape>(ideals);

  GridFit best{};
  float best_change = std::numeric_limits<float>::infinity();
  for (int round = 0; round < kUnitRounds; ++round) {
    PackedHalf d = block.StoreScale(unit / shape.unit);
    unit = block.Load(d) * shape.unit;
    GroupFit groups[kGroups];
    float square = 0;
    float twice = 0;
    for (int g = 0; g < kGroups; ++g) {
      prepare(g);
      groups[g] = FitGroup<Shape>(search, unit, ideals[g].scale);
      const float multiple = static_cast<float>(2 * groups[g].scale + 1);
      square += multiple * multiple * groups[g].points.square;
      twice += multiple * groups[g].points.twice;
    }
    auto change = [&](PackedHalf half) {
      const float t = block.Load(half) * shape.unit;
      return t * (t * square - twice);
    };
    unit = square > 0 ? 0.5f * twice / square : unit;
    const PackedHalf refitted = block.StoreScale(unit / shape.unit);
    if (change(refitted) < change(d)) d = refitted;
    if (change(d) < best_change) {
      best_change = change(d);
      best.d = d;
      for (int g = 0; g < kGroups; ++g) StoreGroup(shape, block, g, groups[g], best);
    }
  }
  return best;
}

constexpr GridShape<GridRule::kShiftPerGroup, 8, 2048, 32, 8> kIq1SShape{kIq1Grid, 0.125f, 7.0f};
constexpr GridShape<GridRule::kShiftPerVector, 8, 2048, 16, 8> kIq1MShape{kIq1Grid, 0.125f, 7.0f};
constexpr GridShape<GridRule::kEvenSigns, 8, 256, 32, 16> kIq2XxsShape{kIq2XxsGrid, 0.125f, 20.0f};
constexpr GridShape<GridRule::kEvenSigns, 8, 512, 16, 16> kIq2XsShape{kIq2XsGrid, 0.125f, 20.0f};
constexpr GridShape<GridRule::kFreeSigns, 8, 1024, 16, 16> kIq2SShape{kIq2SGrid, 0.125f, 20.0f};
constexpr GridShape<GridRule::kEvenSignPairs, 4, 256, 32, 16> kIq3XxsShape{kIq3XxsGrid, 0.25f,
                                                                           26.0f};
constexpr GridShape<GridRule::kFreeSigns, 4, 512, 32, 16> kIq3SShape{kIq3SGrid, 1.0f, 7.0f};
