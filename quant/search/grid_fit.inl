// The fits of quant/search/grid_fit.h, included after quant/search/cube_search.inl: groups look for
// their best scale alone, then the block's unit d is chosen for all, then every group takes the
// multiple of d that seems to leave the least error, and d is fitted to what was chosen.
//
// The error for given points is a parabola of the scale. The parabolas of the points that were
// nearest at two or three scales tell which multiple to take, so that the nearest points have to be
// looked for at that one only.

template <GridRule kRuleValue, class GridType, int kGroupValue, int kScalesValue, int kLevels>
struct GridShape {
  using Grid = GridType;
  static constexpr GridRule kRule = kRuleValue;
  static constexpr int kGroup = kGroupValue;    // values that share a scale
  static constexpr int kScales = kScalesValue;  // multiples 1, 3, .., 2 * kScales - 1 of the unit
  static constexpr int kVectors = kGroup / Grid::kDims;
  static constexpr int kGroups = 256 / kGroup;
  static constexpr int kBlockVectors = 256 / Grid::kDims;
  // The number of scales that are tried before the stored one.
  static constexpr int kTried = IsShift(kRule) ? 2 : 3;
  using Points = GridPoints<kBlockVectors>;
  // Lists of cubes serve only the densest grid, which has shifts.
  using Search = std::conditional_t<IsShift(kRule), CubeSearch<kRule, Grid, kVectors>,
                                    GridSearch<kRule, Grid, kLevels>>;

  const Grid& grid;
  Levels<kLevels> levels;  // of a coordinate
  float unit;              // of the scales: d * unit
  float code_size;         // typical root mean square of well-fitted codes
  float ratios[kTried];    // points are tried at the first scale times these
};

// The search for a scale starts at the scales that give a group's codes a weighted root mean square
// of kStarts times code_size.
constexpr float kStarts[8] = {1.7f, 1.4f, 1.2f, 1.04f, 0.9f, 0.78f, 0.67f, 0.57f};

// The values of a group that shares a scale, or their magnitudes.
template <class Shape>
struct GroupSamples {
  alignas(64) float numbers[Shape::kGroup];
  alignas(64) float weighted[Shape::kGroup];
  LevelSamples x;
  float size;
  // Equal magnitudes are all the same coordinate, and only the least is one that every grid
  // repeats.
  bool is_equal;

  GroupSamples(const float* values, const float* weights)
      : x{numbers, weights, weighted, Shape::kGroup} {
    for (int i = 0; i < Shape::kGroup; i += kWidth) {
      const Floats value = Load(values + i);
      const Floats number = IsShift(Shape::kRule) ? value : Sizes(value);
      Store(numbers + i, number);
      Store(weighted + i, number * Load(weights + i));
    }
    size = RootMeanSquare(x);
    is_equal = std::fabs(PeakOf(x)) < 1.001f * size;
  }
};

// The scales at which coordinates of two groups that take their nearest numbers independently fit
// best; 0 for a group of zeros.
template <class Shape>
[[gnu::noinline]] void FindStarts(const Shape& shape, const float* values, const float* weights,
                                  float* starts) {
  const GroupSamples<Shape> groups[] = {{values, weights},
                                        {values + Shape::kGroup, weights + Shape::kGroup}};
  alignas(64) float inverses[16];
  for (int lane = 0; lane < 16; ++lane) {
    inverses[lane] = kStarts[lane % 8] * (shape.code_size / groups[lane / 8].size);
  }
  const LanesOfSums<16> sums = SumLevels(shape.levels, {groups[0].x, groups[1].x}, inverses);
  int lanes[2];
  FindGreatestOfParts(GainsOf<16>(sums).gains, lanes);
  const float least = std::fabs(shape.grid.points[0][0]) + (IsShift(Shape::kRule) ? 1.0f : 0.0f);
  for (int half = 0; half < 2; ++half) {
    const GroupSamples<Shape>& group = groups[half];
    starts[half] = group.size < 0x1p-60f ? 0
                   : group.is_equal      ? group.size / least
                                         : sums.At(lanes[half]).BestScale();
  }
}

// Numbers of a block's groups, a lane each; lanes without a group are 0.
constexpr int kGroupLanes = 16;
struct GroupNumbers {
  alignas(64) float lanes[kGroupLanes] = {};
};

// The sums of the groups' points.
struct SumsOfGroups {
  GroupNumbers squares;
  GroupNumbers twices;

  Floats Change(int k, Floats scale) const {
    return scale * (scale * Load(squares.lanes + k) - Load(twices.lanes + k));
  }
};
template <class Shape>
SumsOfGroups SumGroups(const typename Shape::Points& points) {
  SumsOfGroups sums;
  for (int g = 0; g < Shape::kGroups; ++g) {
    const GridSums of_group = points.Sum(g * Shape::kVectors, Shape::kVectors);
    sums.squares.lanes[g] = of_group.square;
    sums.twices.lanes[g] = of_group.twice;
  }
  return sums;
}

// The best scales of a block's groups, 0 for a group of zeros, and what was tried for them.
template <class Shape>
struct GroupIdeals {
  GroupNumbers scales;
  GroupNumbers changes;
  GroupNumbers squares;                         // the curvatures of the errors around them
  int32_t variants[Shape::kBlockVectors] = {};  // of the points with those scales
  SumsOfGroups tried[Shape::kTried];

  // The least change of the squared error at given scales, over the points tried.
  Floats LeastChange(int k, Floats scale) const {
    Floats least = tried[0].Change(k, scale);
    for (int i = 1; i < Shape::kTried; ++i) least = Min(tried[i].Change(k, scale), least);
    return least;
  }

  // Takes the scales that fit points best where they change less.
  void Keep(const SumsOfGroups& sums, const typename Shape::Points& points) {
    alignas(64) int32_t better[kGroupLanes];
    for (int k = 0; k < kGroupLanes; k += kWidth) {
      const Floats square = Load(sums.squares.lanes + k);
      const Floats scale = square > 0.0f ? 0.5f * Load(sums.twices.lanes + k) / square : Floats{};
      const Floats change = sums.Change(k, scale);
      const Ints is_better = (scale > 0.0f) & (change < Load(changes.lanes + k));
      Store(scales.lanes + k, is_better ? scale : Load(scales.lanes + k));
      Store(changes.lanes + k, is_better ? change : Load(changes.lanes + k));
      Store(squares.lanes + k, is_better ? square : Load(squares.lanes + k));
      StoreInts(better + k, is_better);
    }
    if constexpr (Shape::kRule == GridRule::kShiftPerGroup) {
      for (int g = 0; g < Shape::kGroups; ++g) {
        const int begin = g * Shape::kVectors;
        if (better[g]) std::copy_n(points.variants + begin, Shape::kVectors, variants + begin);
      }
    }
  }
};

// First for coordinates that take their nearest numbers independently, then for points of the grid
// at scales around that one.
template <class Shape, class Search>
GroupIdeals<Shape> FindIdeals(const Shape& shape, const Search& search, const UnitBlock& block) {
  GroupIdeals<Shape> ideals;
  float starts[Shape::kGroups];
  for (int g = 0; g < Shape::kGroups; g += 2) {
    const int begin = g * Shape::kGroup;
    FindStarts(shape, block.values + begin, block.weights + begin, starts + g);
  }
  for (int i = 0; i < Shape::kTried; ++i) {
    const float ratio = shape.ratios[i];
    alignas(64) float scales[Shape::kBlockVectors];
    for (int v = 0; v < Shape::kBlockVectors; ++v) scales[v] = starts[v / Shape::kVectors] * ratio;
    typename Shape::Points points;
    search.Nearest(scales, points);
    ideals.tried[i] = SumGroups<Shape>(points);
    ideals.Keep(ideals.tried[i], points);
  }
  for (int g = 0; g < Shape::kGroups; ++g) {
    if (starts[g] == 0) ideals.scales.lanes[g] = ideals.squares.lanes[g] = 0;
  }
  return ideals;
}

// The unit whose multiples come nearest to the ideals, from a row of candidates, a lane each.
template <class Shape>
[[gnu::noinline]] float ChooseUnit(const GroupIdeals<Shape>& ideals) {
  constexpr int kCandidates = 64;
  constexpr float kTop = 2 * Shape::kScales - 1;
  float largest = 0;
  for (int g = 0; g < Shape::kGroups; ++g) largest = std::max(largest, ideals.scales.lanes[g]);
  if (largest == 0) return 0;
  alignas(64) float errors[kCandidates];
  alignas(64) float units[kCandidates];
  for (int i = 0; i < kCandidates; i += kWidth) {
    const Floats candidate = __builtin_convertvector(LanesFrom(i), Floats);
    const Floats inverse = kTop * (1.15f - candidate * (0.55f / kCandidates)) / largest;
    const Floats unit = 1.0f / inverse;
    Floats error{};
    for (int g = 0; g < Shape::kGroups; ++g) {
      const float scale = ideals.scales.lanes[g];
      const Floats ratio = 0.5f * (scale * inverse);
      const Floats most = Splat(static_cast<float>(Shape::kScales - 1));
      const Floats s = __builtin_convertvector(
          __builtin_convertvector(Max(Min(ratio, most), Floats{}), Ints), Floats);
      const Floats difference = unit * (s + s + 1.0f) - scale;
      error += ideals.squares.lanes[g] * difference * difference;
    }
    Store(units + i, unit);
    Store(errors + i, -error);
  }
  int lanes[1];
  FindGreatest(errors, lanes);
  return units[lanes[0]];
}

// Chooses for each group the multiple 2 s + 1 of `unit`, of four about the ideal, with which the
// best of the points that were tried reduce the error most.
template <class Shape>
void ChooseMultiples(const GroupIdeals<Shape>& ideals, float unit, GroupNumbers& multiples) {
  const Floats most = Splat(static_cast<float>(Shape::kScales - 1));
  const float inverse = unit < 0x1p-126f ? 0 : 1 / unit;
  for (int k = 0; k < kGroupLanes; k += kWidth) {
    // The multiple is at most as large as the ideal where s is at most this.
    const Floats below = 0.5f * (Load(ideals.scales.lanes + k) * inverse - 1.0f);
    const Floats first = __builtin_convertvector(
        __builtin_convertvector(Max(Min(below, most), Floats{}), Ints), Floats);
    Floats least = Splat(std::numeric_limits<float>::infinity());
    Floats chosen{};
    for (const float step : {-1.0f, 0.0f, 1.0f, 2.0f}) {
      const Floats s = Max(Min(first + step, most), Floats{});
      const Floats multiple = s + s + 1.0f;
      const Floats change = ideals.LeastChange(k, unit * multiple);
      const auto is_less = change < least;
      least = is_less ? change : least;
      chosen = is_less ? multiple : chosen;
    }
    Store(multiples.lanes + k, chosen);
  }
}

// The points for the groups' multiples of `unit`.
template <class Shape, class Search>
void FitGroups(const Search& search, float unit, const GroupIdeals<Shape>& ideals,
               const GroupNumbers& multiples, typename Shape::Points& points) {
  alignas(64) float scales[Shape::kBlockVectors];
  for (int v = 0; v < Shape::kBlockVectors; ++v) {
    scales[v] = unit * multiples.lanes[v / Shape::kVectors];
  }
  if constexpr (Shape::kRule == GridRule::kShiftPerGroup) {
    // A group's shift is hardly another one at a scale next to its ideal.
    std::copy_n(ideals.variants, Shape::kBlockVectors, points.variants);
    search.NearestOfVariants(scales, points);
  } else {
    search.Nearest(scales, points);
  }
}

// The signs of the eight values from `values` on, for points chosen with or without a changed sign:
// the sign that costs least gives way.
template <class Shape>
[[gnu::noinline]] uint8_t StoredSigns(const Shape& shape, const float* values, const float* weights,
                                      const uint16_t* points, const int32_t* variants) {
  int signs = 0;
  for (int j = 0; j < 8; ++j) {
    signs |= static_cast<int>(std::bit_cast<uint32_t>(values[j]) >> 31) << j;
  }
  if (std::popcount(static_cast<unsigned>(signs)) % 2 == 0) return static_cast<uint8_t>(signs);
  if (Shape::kRule == GridRule::kFreeSigns) return static_cast<uint8_t>(signs);
  int changed = 0;
  float least = std::numeric_limits<float>::infinity();
  for (int j = 0; j < 8; ++j) {
    const int vector = j / Shape::Grid::kDims;
    if (Shape::kRule == GridRule::kEvenSignPairs && variants[vector] == 0) continue;
    const float code = shape.grid.points[points[vector]][j % Shape::Grid::kDims];
    const float cost = weights[j] * std::fabs(values[j]) * code;
    if (cost < least) {
      least = cost;
      changed = j;
    }
  }
  return static_cast<uint8_t>(signs ^ 1 << changed);
}

template <class Shape>
void StorePoints(const Shape& shape, const UnitBlock& block, const typename Shape::Points& points,
                 GridFit& fit) {
  const auto& minima = MinimaOf(shape.grid);
  for (int v = 0; v < Shape::kBlockVectors; ++v) {
    fit.points[v] = minima.points[points.uppers[v] * Shape::Grid::kHalves + points.lowers[v]];
  }
  for (int i = 0; i < 256; i += 8) {
    const int vector = i / Shape::Grid::kDims;
    if constexpr (IsShift(Shape::kRule)) {
      fit.minus[i / 8] = points.variants[vector] != 0;
    } else {
      fit.signs[i / 8] = StoredSigns(shape, block.values + i, block.weights + i,
                                     fit.points + vector, points.variants + vector);
    }
  }
}

template <class Shape>
GridFit FitGrid(const Shape& shape, const UnitBlock& block) {
  GridFit fit{};
  const typename Shape::Search search(shape.grid, shape.levels.levels, block);
  const GroupIdeals<Shape> ideals = FindIdeals(shape, search, block);
  fit.d = block.StoreScale(ChooseUnit(ideals) / shape.unit);
  const float unit = block.Load(fit.d) * shape.unit;
  GroupNumbers multiples;
  ChooseMultiples(ideals, unit, multiples);
  typename Shape::Points points;
  FitGroups(search, unit, ideals, multiples, points);
  StorePoints(shape, block, points, fit);
  const SumsOfGroups of_groups = SumGroups<Shape>(points);
  GridSums sums;  // in multiples of the unit
  for (int g = 0; g < Shape::kGroups; ++g) {
    const float multiple = multiples.lanes[g];
    sums.square += multiple * multiple * of_groups.squares.lanes[g];
    sums.twice += multiple * of_groups.twices.lanes[g];
    fit.scales[g] = static_cast<uint8_t>(static_cast<int>(multiple) / 2);
  }
  // The points are chosen; another d may serve them better.
  const PackedHalf refitted = block.StoreScale(sums.BestScale() / shape.unit);
  if (sums.Change(block.Load(refitted) * shape.unit) < sums.Change(unit)) fit.d = refitted;
  return fit;
}

template <class Shape>
GridFit SearchGrid(const Shape& shape, const float* values, const float* importance) {
  const UnitBlock block(values, importance, 256);
  if (block.all_zero) return {};
  return FitGrid(shape, block);
}

constexpr int8_t kIq1Numbers[] = {-8, 0, 8};
constexpr int8_t kIq2Numbers[] = {8, 25, 43};
constexpr int8_t kIq3XxsNumbers[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kIq3SNumbers[] = {1, 3, 5, 7, 9, 11, 13, 15};

constexpr GridShape<GridRule::kShiftPerGroup, decltype(kIq1Grid), 32, 8, 3> kIq1SShape{
    kIq1Grid, MakeLevels(kIq1Numbers), 0.125f, 7, {1 / 1.12f, 1.12f}};
constexpr GridShape<GridRule::kShiftPerVector, decltype(kIq1Grid), 16, 8, 3> kIq1MShape{
    kIq1Grid, MakeLevels(kIq1Numbers), 0.125f, 7, {1 / 1.12f, 1.12f}};
constexpr GridShape<GridRule::kEvenSigns, decltype(kIq2XxsGrid), 32, 16, 3> kIq2XxsShape{
    kIq2XxsGrid, MakeLevels(kIq2Numbers), 0.125f, 20, {1 / 1.22f, 1, 1.22f}};
constexpr GridShape<GridRule::kEvenSigns, decltype(kIq2XsGrid), 16, 16, 3> kIq2XsShape{
    kIq2XsGrid, MakeLevels(kIq2Numbers), 0.125f, 20, {1 / 1.22f, 1, 1.22f}};
constexpr GridShape<GridRule::kFreeSigns, decltype(kIq2SGrid), 16, 16, 3> kIq2SShape{
    kIq2SGrid, MakeLevels(kIq2Numbers), 0.125f, 20, {1 / 1.22f, 1, 1.22f}};
constexpr GridShape<GridRule::kEvenSignPairs, decltype(kIq3XxsGrid), 32, 16, 8> kIq3XxsShape{
    kIq3XxsGrid,
    MakeLevels(kIq3XxsNumbers, {0.13348f, 0.00015f, -0.58727f}),
    0.25f,
    26,
    {1 / 1.22f, 1, 1.22f}};
constexpr GridShape<GridRule::kFreeSigns, decltype(kIq3SGrid), 32, 16, 8> kIq3SShape{
    kIq3SGrid, MakeLevels(kIq3SNumbers, {0.5f, 0, -0.5f}), 1, 7, {1 / 1.18f, 1, 1.18f}};

inline GridFit SearchIq1S(const float* values, const float* importance) {
  return SearchGrid(kIq1SShape, values, importance);
}
inline GridFit SearchIq1M(const float* values, const float* importance) {
  return SearchGrid(kIq1MShape, values, importance);
}
inline GridFit SearchIq2Xxs(const float* values, const float* importance) {
  return SearchGrid(kIq2XxsShape, values, importance);
}
inline GridFit SearchIq2Xs(const float* values, const float* importance) {
  return SearchGrid(kIq2XsShape, values, importance);
}
inline GridFit SearchIq2S(const float* values, const float* importance) {
  return SearchGrid(kIq2SShape, values, importance);
}
inline GridFit SearchIq3Xxs(const float* values, const float* importance) {
  return SearchGrid(kIq3XxsShape, values, importance);
}
inline GridFit SearchIq3S(const float* values, const float* importance) {
  return SearchGrid(kIq3SShape, values, importance);
}
