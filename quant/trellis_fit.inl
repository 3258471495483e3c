// The fits of quant/trellis.h, included after quant/shifted_row_fit.inl and quant/trellis_tree.h.
//
// A group of 32 values tries the stored scales next to the one that makes points as large as its
// values: points are spread at random, so each scale is another draw, and the best of them leaves
// clearly less than the middle one. The points for all these scales are found in one walk through
// the tree. The row's factor is the best one for what was chosen.

// ---- The nearest points ------------------------------------------------------------------------

template <int kBy, class Vector, size_t... kIndex>
Vector RotateLanes(Vector v, std::index_sequence<kIndex...> /*lanes*/) {
  return __builtin_shufflevector(v, v, ((kIndex + kBy) % kWidth)...);
}
// The least lane, in every lane.
template <int kBy = kWidth / 2, class Vector>
Vector LeastLane(Vector v) {
  const Vector other = RotateLanes<kBy>(v, std::make_index_sequence<kWidth>());
  v = v < other ? v : other;
  if constexpr (kBy > 1) v = LeastLane<kBy / 2>(v);
  return v;
}

constexpr int kVectorsOf16 = kLanes / kWidth;

// Sixteen errors, none below zero, as their bits with the lane's number in the lowest four: order
// and place in one integer, equal errors in the order of the lanes.
class RankedErrors {
 public:
  static constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

  void Set(int part, Floats errors) {
    Ints lanes;
    for (int i = 0; i < kWidth; ++i) lanes[i] = part * kWidth + i;
    parts_[part] = (reinterpret_cast<Ints>(errors) & ~15) | lanes;
  }
  int32_t Least() const {
    Ints least = parts_[0];
    for (int part = 1; part < kVectorsOf16; ++part) {
      least = parts_[part] < least ? parts_[part] : least;
    }
    return LeastLane(least)[0];
  }
  void Remove(int32_t rank) {
    for (Ints& part : parts_) part = part == rank ? Ints{} + kNone : part;
  }
  static int Place(int32_t rank) { return rank & 15; }

 private:
  Ints parts_[kVectorsOf16];
};

// Scales that are tried together, as multiples of the middle one, monotonic.
struct ScaleRatios {
  static constexpr int kMost = 12;
  int count = 1;
  float ratios[kMost] = {1};
};

// The points nearest to some values in units of each of some scales: those with the least
// sum_k w_k (x_k - ratio point_k)^2. Subtrees are left out whose boxes are nearer to none of these
// values than kReach times the squared distance of what was found for the middle scale; so the
// points are near ones, and not always the nearest.
template <int kDims>
class PointSearch {
 public:
  PointSearch(const TrellisTree& tree, const float* values, const float* weights, float inverse,
              const ScaleRatios& scales)
      : tree_(tree), weights_(weights), scales_(scales) {
    const float first = 1 / scales.ratios[0];
    const float last = 1 / scales.ratios[scales.count - 1];
    for (int k = 0; k < kDims; ++k) {
      // Far outside of the points only the direction counts, and squares stay finite.
      const float x = std::clamp(values[k] * inverse, -4096.0f, 4096.0f);
      twice_weighted_[k] = 2 * weights[k] * x;
      square_ += weights[k] * x * x;
      least_[k] = std::min(x * first, x * last);
      greatest_[k] = std::max(x * first, x * last);
    }
    for (int s = 0; s < scales.count; ++s) {
      for (Floats& error : best_[s].errors) error = Splat(std::numeric_limits<float>::max());
    }
    Visit<0>(0);
  }

  // The number of the point for a scale, leaf after leaf.
  int Best(int s) const {
    RankedErrors errors;
    for (int part = 0; part < kVectorsOf16; ++part) {
      errors.Set(part, Max(best_[s].errors[part] + Splat(square_), Floats{}));
    }
    int32_t leaves[kLanes];
    std::memcpy(leaves, best_[s].leaves, sizeof(leaves));
    const int lane = RankedErrors::Place(errors.Least());
    return leaves[lane] * TrellisTree::kFanout + lane;
  }

 private:
  static constexpr float kReach = 0.25f;

  // Squared distances of a node's children: of boxes from the range of values of all scales.
  RankedErrors ToBoxes(int node) const {
    const float* boxes = tree_.Boxes(node);
    RankedErrors errors;
    for (int part = 0; part < kVectorsOf16; ++part) {
      const float* at = boxes + part * kWidth;
      Floats error{};
      for (int k = 0; k < kDims; ++k, at += 2 * kLanes) {
        const Floats above = Load(at) - Splat(greatest_[k]);
        const Floats below = Splat(least_[k]) - Load(at + kLanes);
        const Floats outside = Max(Max(above, below), Floats{});
        error += Splat(weights_[k]) * outside * outside;
      }
      errors.Set(part, error);
    }
    return errors;
  }

  // Errors are counted without what no point changes, square_.
  void Scan(int leaf) {
    const float* points = tree_.Points(leaf);
    Floats least = Splat(std::numeric_limits<float>::max());
    for (int part = 0; part < kVectorsOf16; ++part) {
      const float* at = points + part * kWidth;
      Floats product{};
      Floats square{};
      for (int k = 0; k < kDims; ++k, at += kLanes) {
        const Floats point = Load(at);
        product += Splat(twice_weighted_[k]) * point;
        square += Splat(weights_[k]) * point * point;
      }
      for (int s = 0; s < scales_.count; ++s) {
        const Floats ratio = Splat(scales_.ratios[s]);
        const Floats error = ratio * (ratio * square - product);
        const auto nearer = error < best_[s].errors[part];
        best_[s].errors[part] = nearer ? error : best_[s].errors[part];
        best_[s].leaves[part] = nearer ? Ints{} + leaf : best_[s].leaves[part];
      }
      least = Min(least, square - product);
    }
    const float found = std::max(square_ + LeastLane(least)[0], 0.0f);
    limit_ = std::min(limit_, std::bit_cast<int32_t>(kReach * found));
  }

  // The children of a node, the nearest first. Before a leaf has been seen there is no limit.
  template <int kDepth>
  void Visit(int node) {
    RankedErrors errors = ToBoxes(node);
    for (int32_t least = errors.Least(); least < limit_; least = errors.Least()) {
      const int child = RankedErrors::Place(least);
      if constexpr (kDepth == 2) {
        Scan(tree_.Leaf(node, child));
      } else {
        Visit<kDepth + 1>(tree_.Child(kDepth, node, child));
      }
      errors.Remove(least);
    }
  }

  struct BestPoints {
    Floats errors[kVectorsOf16];
    Ints leaves[kVectorsOf16] = {};
  };

  const TrellisTree& tree_;
  const float* weights_;
  const ScaleRatios& scales_;
  float square_ = 0;
  float twice_weighted_[kDims];
  float least_[kDims];
  float greatest_[kDims];
  BestPoints best_[ScaleRatios::kMost];
  int32_t limit_ = RankedErrors::kNone;
};

// The points of a group for one scale, and what least squares need.
struct TrellisPoints {
  LevelSums sums;
  uint16_t indices[8] = {};
};

template <int kDims>
void FindPoints(const TrellisTree& tree, const LevelSamples& x, float scale,
                const ScaleRatios& scales, TrellisPoints* found) {
  const float inverse = InverseOrZero(scale);
  for (int i = 0; i < 32; i += kDims) {
    const PointSearch<kDims> search(tree, x.values + i, x.weights + i, inverse, scales);
    for (int s = 0; s < scales.count; ++s) {
      const int point = search.Best(s);
      found[s].indices[i / kDims] = tree.indices[static_cast<size_t>(point)];
      const float* numbers =
          tree.Points(point / TrellisTree::kFanout) + point % TrellisTree::kFanout;
      for (int k = 0; k < kDims; ++k) {
        const float number = numbers[k * TrellisTree::kFanout];
        const float weighted = x.weights[i + k] * number;
        found[s].sums.product += weighted * x.values[i + k];
        found[s].sums.square += weighted * number;
      }
    }
  }
}

// ---- Rows --------------------------------------------------------------------------------------

// What a format can store, and how it is searched.
struct TrellisGrid {
  std::span<const float> multiples;  // of the row's factor: what field n stands for, ascending
  float extreme;                     // the multiple that the largest scale of a row takes
  // The middle scale: so much of it makes the group's largest magnitude `peak`, the rest gives
  // points the size of the values.
  float of_peak;
  float peak;
  float spread;  // how far from the middle scales are tried, as a part of it
  int most;      // how many, at most; both signs where there are multiples below zero

  int Nearest(float multiple) const {
    const auto above = std::lower_bound(multiples.begin(), multiples.end(), multiple);
    if (above == multiples.begin()) return 0;
    if (above == multiples.end()) return static_cast<int>(multiples.size()) - 1;
    const int n = static_cast<int>(above - multiples.begin());
    return *above - multiple < multiple - above[-1] ? n : n - 1;
  }
  float Multiple(int n) const { return multiples[static_cast<size_t>(n)]; }
};

// The standard deviation of the generator's numbers: twice that of 0 .. 63.
constexpr float kTrellisSize = 36.95f;

inline float MiddleScale(const TrellisGrid& grid, const LevelSamples& x) {
  const float of_size = RootMeanSquare(x) / kTrellisSize;
  return grid.of_peak * std::fabs(PeakOf(x)) / grid.peak + (1 - grid.of_peak) * of_size;
}

// What a group becomes.
struct TrellisGroup {
  int scale = 0;
  float gain = -std::numeric_limits<float>::infinity();
  TrellisPoints points;
};

// The stored scales about `middle`, a multiple of `unit`, are tried.
template <int kDims>
void TryScales(const TrellisGrid& grid, const TrellisTree& tree, const LevelSamples& x, float unit,
               float middle, TrellisGroup& group) {
  const int at = grid.Nearest(middle);
  const int one = grid.Nearest(middle * (1 - grid.spread));
  const int other = grid.Nearest(middle * (1 + grid.spread));
  int first = std::min(one, other);
  int last = std::max(one, other);
  while (last - first + 1 > grid.most) (at - first > last - at ? first += 1 : last -= 1);
  ScaleRatios scales;
  scales.count = last - first + 1;
  const float multiple = grid.Multiple(at);
  for (int s = 0; s < scales.count; ++s) scales.ratios[s] = grid.Multiple(first + s) / multiple;
  // A scale of zero, or of the other sign, has no ratio: the one in the middle is tried alone.
  if (!(scales.ratios[0] > 0.25f && scales.ratios[scales.count - 1] > 0.25f)) {
    scales = {};
    first = at;
  }
  TrellisPoints found[ScaleRatios::kMost];
  FindPoints<kDims>(tree, x, unit * multiple, scales, found);
  for (int s = 0; s < scales.count; ++s) {
    const float gain = found[s].sums.Gain(unit * grid.Multiple(first + s));
    if (gain > group.gain) group = {first + s, gain, found[s]};
  }
}

// kDims: values of a point. trees: each group's points are all of one of these.
template <int kDims>
TrellisRowFit SearchTrellisRow(const TrellisGrid& grid, std::span<const TrellisTree* const> trees,
                               const std::vector<RowBlock>& blocks) {
  TrellisRowFit fit{0, std::vector<TrellisFit>(blocks.size())};
  std::vector<float> middles(blocks.size() * 8);
  double largest = 0;
  for (size_t g = 0; g < middles.size(); ++g) {
    const RowBlock& block = blocks[g / 8];
    if (block.unit.all_zero) continue;
    const LevelSamples x = block.Group(static_cast<int>(g % 8), 32);
    if (std::fabs(PeakOf(x)) < 0x1p-60f) continue;
    middles[g] = MiddleScale(grid, x);
    largest = std::max(largest, std::ldexp(double{middles[g]}, block.unit.exponent));
  }
  fit.d = largest == 0 ? 0 : StoredFactor<FloatHead>(largest / double{grid.extreme});

  // Groups of zeros: the point next to zero, times the least scale.
  constexpr float kZeros[32] = {};
  float ones[32];
  std::fill(std::begin(ones), std::end(ones), 1.0f);
  TrellisGroup zeros;
  TryScales<kDims>(grid, *trees[0], {kZeros, ones, kZeros, 32}, 0, 0, zeros);

  double product = 0;
  double square = 0;
  for (size_t g = 0; g < middles.size(); ++g) {
    TrellisGroup group = zeros;
    if (middles[g] != 0) {
      const RowBlock& block = blocks[g / 8];
      const LevelSamples x = block.Group(static_cast<int>(g % 8), 32);
      const float unit = block.InUnit(fit.d);
      const float middle = middles[g] * InverseOrZero(unit);
      group = {};
      for (const TrellisTree* tree : trees) {
        TryScales<kDims>(grid, *tree, x, unit, middle, group);
        if (grid.multiples.front() < 0) TryScales<kDims>(grid, *tree, x, unit, -middle, group);
      }
      const double multiple = grid.Multiple(group.scale);
      const LevelSums& sums = group.points.sums;
      product += block.heaviest * multiple * std::ldexp(double{sums.product}, block.unit.exponent);
      square += block.heaviest * multiple * multiple * double{sums.square};
    }
    TrellisFit& out = fit.blocks[g / 8];
    out.scales[g % 8] = static_cast<int16_t>(group.scale);
    constexpr size_t kPoints = 32 / kDims;
    std::copy_n(group.points.indices, kPoints, out.indices + g % 8 * kPoints);
  }
  if (square > 0) fit.d = StoredFactor<FloatHead>(product / square);
  return fit;
}

inline std::vector<RowBlock> RowBlocks(const float* values, const float* importance,
                                       int64_t count) {
  std::vector<RowBlock> blocks;
  blocks.reserve(static_cast<size_t>(count / 256));
  for (int64_t i = 0; i < count; i += 256) {
    blocks.emplace_back(values + i, importance == nullptr ? nullptr : importance + i);
  }
  return blocks;
}

// ---- The formats -------------------------------------------------------------------------------

template <int kFirst, size_t kCount>
constexpr std::array<float, kCount> Ascending() {
  std::array<float, kCount> multiples{};
  for (size_t i = 0; i < kCount; ++i) multiples[i] = kFirst + static_cast<float>(i);
  return multiples;
}
constexpr std::array<float, 16> kMultiplesOfIq2Kt = [] {
  std::array<float, 16> multiples{};
  for (size_t i = 0; i < 16; ++i) multiples[i] = kIq4Levels[i];
  return multiples;
}();
constexpr std::array<float, 16> kMultiplesOfIq3Kt = Ascending<0, 16>();
constexpr std::array<float, 128> kMultiplesOfIq4Kt = Ascending<-64, 128>();

// The parts and spreads were found on random values with and without importances.
inline TrellisRowFit SearchIq1Kt(const float* values, const float* importance, int64_t count) {
  constexpr TrellisGrid kGrid = {kMultiplesOfIq2Kt, 127, 0, 1, 0.2f, 3};
  const TrellisTree* const trees[] = {&TreeOfIq1Kt()};
  return SearchTrellisRow<8>(kGrid, trees, RowBlocks(values, importance, count));
}
inline TrellisRowFit SearchIq2Kt(const float* values, const float* importance, int64_t count) {
  constexpr TrellisGrid kGrid = {kMultiplesOfIq2Kt, 127, 0, 1, 0.2f, 3};
  const TrellisTree* const trees[] = {&TreeOfIq2Kt()};
  return SearchTrellisRow<8>(kGrid, trees, RowBlocks(values, importance, count));
}

inline TrellisRowFit SearchIq3Kt(const float* values, const float* importance, int64_t count) {
  constexpr TrellisGrid kGrid = {kMultiplesOfIq3Kt, 14, 0.5f, 85, 0.2f, 4};
  std::vector<RowBlock> blocks = RowBlocks(values, importance, count);
  std::vector<uint32_t> negative(blocks.size() * 8);
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b].unit.all_zero) continue;
    for (size_t i = 0; i < 256; ++i) {
      float& value = blocks[b].unit.values[i];
      negative[b * 8 + i / 32] |= uint32_t{value < 0} << (i % 32);
      value = std::fabs(value);
    }
  }
  const TrellisTree* const trees[] = {&TreeOfIq3Kt()};
  TrellisRowFit fit = SearchTrellisRow<8>(kGrid, trees, blocks);
  for (size_t g = 0; g < negative.size(); ++g) fit.blocks[g / 8].negative[g % 8] = negative[g];
  return fit;
}

inline TrellisRowFit SearchIq4Kt(const float* values, const float* importance, int64_t count) {
  constexpr TrellisGrid kGrid = {kMultiplesOfIq4Kt, 60, 1, 80, 0.2f, ScaleRatios::kMost};
  const TrellisTree* const trees[] = {&TreeOfIq4Kt(0), &TreeOfIq4Kt(1)};
  return SearchTrellisRow<4>(kGrid, trees, RowBlocks(values, importance, count));
}
