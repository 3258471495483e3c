// The fits of quant/grid_fit.h, included after quant/grid_search.inl: groups look for their best
// scale alone, then the block's unit d is chosen for all, then every group takes the multiple of d
// that leaves the least error, and d is fitted to what was chosen.

template <GridRule kRuleValue, class GridType, int kGroupValue, int kScalesValue, int kLevels>
struct GridShape {
  using Grid = GridType;
  static constexpr GridRule kRule = kRuleValue;
  static constexpr int kGroup = kGroupValue;    // values that share a scale
  static constexpr int kScales = kScalesValue;  // multiples 1, 3, .., 2 * kScales - 1 of the unit
  static constexpr int kVectors = kGroup / Grid::kDims;
  static constexpr int kGroups = 256 / kGroup;
  static constexpr int kBlockVectors = 256 / Grid::kDims;
  using Points = GridPoints<kBlockVectors>;
  // Weights that are uneven make far choices cheap. So the lists of cubes serve only the densest
  // grid then, which has shifts.
  static constexpr bool kHasCubes = CubesExist<std::remove_const_t<GridType>>;
  static constexpr bool kWeightedHasCubes = IsShift(kRule);
  // A third multiple makes good for what these searches and their steps cost.
  static constexpr int kWeightedTries = Grid::kDims == 4 ? 3 : 2;
  template <bool kCubes>
  using Search = std::conditional_t<kCubes, CubeSearch<kRule, Grid, kLevels, kVectors>,
                                    GridSearch<kRule, Grid, kLevels>>;

  const Grid& grid;
  Levels<kLevels> levels;  // of a coordinate
  float unit;              // of the scales: d * unit
  float code_size;         // typical root mean square of well-fitted codes
  float ratios[3];         // points are tried at the first scale times these, 0 for none
};

// The search for a scale starts at the scales that give a group's codes a weighted root mean square
// of so many times code_size.
constexpr float kStarts[8] = {1.7f, 1.4f, 1.2f, 1.04f, 0.9f, 0.78f, 0.67f, 0.57f};

struct GroupIdeal {
  float scale = 0;
  float square = 0;  // the curvature of the error around it
};

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

template <class Shape>
struct GroupIdeals {
  GroupIdeal groups[Shape::kGroups];
  int32_t variants[Shape::kBlockVectors] = {};  // of the points with those scales
};

// The best scales of a block's groups: first for coordinates that take their nearest numbers
// independently, then for points of the grid at scales around that one.
template <class Shape, class Search>
GroupIdeals<Shape> FindIdeals(const Shape& shape, const Search& search, const UnitBlock& block) {
  GroupIdeals<Shape> ideals;
  float starts[Shape::kGroups];
  float best_changes[Shape::kGroups] = {};
  for (int g = 0; g < Shape::kGroups; g += 2) {
    const int begin = g * Shape::kGroup;
    FindStarts(shape, block.values + begin, block.weights + begin, starts + g);
  }
  for (const float ratio : shape.ratios) {
    if (ratio == 0) continue;
    alignas(64) float scales[Shape::kBlockVectors];
    for (int v = 0; v < Shape::kBlockVectors; ++v) scales[v] = starts[v / Shape::kVectors] * ratio;
    typename Shape::Points points;
    search.Nearest(scales, points);
    for (int g = 0; g < Shape::kGroups; ++g) {
      const int begin = g * Shape::kVectors;
      const GridSums sums = points.Sum(begin, Shape::kVectors);
      const float best_scale = sums.BestScale();
      if (starts[g] == 0 || best_scale <= 0 || sums.Change(best_scale) >= best_changes[g]) continue;
      best_changes[g] = sums.Change(best_scale);
      ideals.groups[g] = {best_scale, sums.square};
      std::copy_n(points.variants + begin, Shape::kVectors, ideals.variants + begin);
    }
  }
  return ideals;
}

// The unit whose multiples come nearest to the ideals, from a row of candidates, a lane each.
template <int kGroups, int kScales>
[[gnu::noinline]] float ChooseUnit(const GroupIdeal* ideals) {
  constexpr int kCandidates = 64;
  constexpr float kTop = 2 * kScales - 1;
  float largest = 0;
  for (int g = 0; g < kGroups; ++g) largest = std::max(largest, ideals[g].scale);
  if (largest == 0) return 0;
  alignas(64) float errors[kCandidates];
  alignas(64) float units[kCandidates];
  for (int i = 0; i < kCandidates; i += kWidth) {
    const Floats candidate = __builtin_convertvector(LanesFrom(i), Floats);
    const Floats inverse = kTop * (1.15f - candidate * (0.55f / kCandidates)) / largest;
    const Floats unit = 1.0f / inverse;
    Floats error{};
    for (int g = 0; g < kGroups; ++g) {
      const Floats ratio = 0.5f * (ideals[g].scale * inverse);
      const Floats most = Splat(static_cast<float>(kScales - 1));
      const Floats s = __builtin_convertvector(
          __builtin_convertvector(Max(Min(ratio, most), Floats{}), Ints), Floats);
      const Floats difference = unit * (s + s + 1.0f) - ideals[g].scale;
      error += ideals[g].square * difference * difference;
    }
    Store(units + i, unit);
    Store(errors + i, -error);
  }
  int lanes[1];
  FindGreatest(errors, lanes);
  return units[lanes[0]];
}

// The multiples of `unit` that leave the least errors, of those next to the ideals: as many as
// `tries`, 2 or 3, the next smaller one last.
template <class Shape, class Search>
void FitGroups(const Search& search, float unit, const GroupIdeals<Shape>& ideals, int tries,
               int (&multiples)[Shape::kGroups], typename Shape::Points& best) {
  constexpr int kVectors = Shape::kVectors;
  float best_changes[Shape::kGroups];
  constexpr int kSteps[] = {0, 1, -1};
  for (const int step : std::span(kSteps, static_cast<size_t>(tries))) {
    int tried[Shape::kGroups];
    alignas(64) float scales[Shape::kBlockVectors];
    for (int g = 0; g < Shape::kGroups; ++g) {
      // The multiple 2 s + 1 is at most as large as the ideal where s is at most this.
      const float below = unit < 0x1p-126f ? 0 : 0.5f * (ideals.groups[g].scale / unit - 1);
      const float most = static_cast<float>(Shape::kScales - 1);
      tried[g] =
          std::clamp(static_cast<int>(std::clamp(below, 0.0f, most)) + step, 0, Shape::kScales - 1);
      std::fill_n(scales + g * kVectors, kVectors, unit * static_cast<float>(2 * tried[g] + 1));
    }
    typename Shape::Points points;
    if constexpr (Shape::kRule == GridRule::kShiftPerGroup) {
      // A group's shift is hardly another one at a scale next to its ideal.
      std::copy_n(ideals.variants, Shape::kBlockVectors, points.variants);
      search.NearestOfVariants(scales, points);
    } else {
      search.Nearest(scales, points);
    }
    for (int g = 0; g < Shape::kGroups; ++g) {
      const float change = points.Sum(g * kVectors, kVectors).Change(scales[g * kVectors]);
      if (step != 0 && !(change < best_changes[g])) continue;
      best_changes[g] = change;
      multiples[g] = tried[g];
      best.Copy(points, g * kVectors, kVectors);
    }
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
  for (int v = 0; v < Shape::kBlockVectors; ++v) {
    // The points with an upper pattern are in the order of their lower ones.
    int point = shape.grid.starts[points.uppers[v]];
    while (shape.grid.lower[point] != points.lowers[v]) ++point;
    fit.points[v] = static_cast<uint16_t>(point);
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

template <bool kCubes, class Shape>
GridFit FitGrid(const Shape& shape, const UnitBlock& block, int tries) {
  GridFit fit{};
  const typename Shape::template Search<kCubes> search(shape.grid, shape.levels.levels, block);
  const GroupIdeals<Shape> ideals = FindIdeals(shape, search, block);
  fit.d = block.StoreScale(ChooseUnit<Shape::kGroups, Shape::kScales>(ideals.groups) / shape.unit);
  const float unit = block.Load(fit.d) * shape.unit;
  int multiples[Shape::kGroups];
  typename Shape::Points points;
  FitGroups(search, unit, ideals, tries, multiples, points);
  StorePoints(shape, block, points, fit);
  GridSums sums;  // in multiples of the unit
  for (int g = 0; g < Shape::kGroups; ++g) {
    const float multiple = static_cast<float>(2 * multiples[g] + 1);
    const GridSums of_group = points.Sum(g * Shape::kVectors, Shape::kVectors);
    sums.square += multiple * multiple * of_group.square;
    sums.twice += multiple * of_group.twice;
    fit.scales[g] = static_cast<uint8_t>(multiples[g]);
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
  if (importance == nullptr) return FitGrid<Shape::kHasCubes>(shape, block, 2);
  return FitGrid<Shape::kWeightedHasCubes>(shape, block, Shape::kWeightedTries);
}

constexpr int8_t kIq1Numbers[] = {-8, 0, 8};
constexpr int8_t kIq2Numbers[] = {8, 25, 43};
constexpr int8_t kIq3XxsNumbers[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kIq3SNumbers[] = {1, 3, 5, 7, 9, 11, 13, 15};

constexpr GridShape<GridRule::kShiftPerGroup, decltype(kIq1Grid), 32, 8, 3> kIq1SShape{
    kIq1Grid, MakeLevels(kIq1Numbers), 0.125f, 7, {1 / 1.22f, 1, 1.22f}};
constexpr GridShape<GridRule::kShiftPerVector, decltype(kIq1Grid), 16, 8, 3> kIq1MShape{
    kIq1Grid, MakeLevels(kIq1Numbers), 0.125f, 7, {1 / 1.22f, 1, 1.22f}};
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
