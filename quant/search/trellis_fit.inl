// The fits of quant/formats/trellis.h, included after quant/search/shifted_row_fit.inl and
// quant/search/trellis_search.inl.
//
// A group of 32 values tries the stored scales next to the one that makes points as large as its
// values, with both signs, and both halves of the indices where a group may have either. Points are
// spread at random, so each try is another draw, and the best draw leaves clearly less error than
// the middle scale. One search finds the points for all scales of a sign. The row's factor is the
// best one for the chosen points and scales.

// The multiples of a row's factor that a format can store, and the settings of the search.
struct TrellisGrid {
  std::span<const float> multiples;  // of the row's factor: what field n stands for, ascending
  float extreme;                     // the multiple that the largest scale of a row takes
  // The middle scale: so much of it makes the group's largest magnitude `peak`, the rest gives
  // points the size of the values.
  float of_peak;
  float peak;
  float spread;  // how far from the middle scales are tried, as a part of it

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

// A fitted group: its stored scale, its points and their error.
struct TrellisGroup {
  int scale = 0;
  float error = std::numeric_limits<float>::infinity();
  float first_half = std::numeric_limits<float>::infinity();  // of the first 16 values
  const TrellisCells* cells = nullptr;
  int points[8] = {};
};

// The stored scales next to a base, or to its negative, some of them more than once.
template <int kScales>
TriedScales<kScales> ScalesNear(const TrellisGrid& grid, const TrellisBase& base, int sign) {
  const float middle = sign == 0 ? base.multiple : -base.multiple;
  const int at = grid.Nearest(middle);
  const int one = grid.Nearest(middle * (1 - grid.spread));
  const int other = grid.Nearest(middle * (1 + grid.spread));
  const int first = std::min(one, other);
  const int last = std::max(one, other);
  int fields[kScales];
  float multiples[kScales];
  for (int s = 0; s < kScales; ++s) {
    const int field = first + ((last - first) * s + (kScales - 1) / 2) / (kScales - 1);
    // A scale of zero, or of the other sign, does not measure the values.
    fields[s] = grid.Multiple(field) * middle > 0 ? field : at;
    multiples[s] = std::fabs(grid.Multiple(fields[s]));
  }
  return {base, fields, multiples};
}

// The stored scales about `middle` and -middle, multiples of `unit`, are tried.
template <class Params>
void TryScales(const TrellisGrid& grid, std::span<const TrellisCells* const> cells,
               const LevelSamples& x, float unit, float middle, TrellisGroup& group) {
  constexpr int kDims = Params::kDims;
  constexpr int kVectors = 32 / kDims;
  const TrellisBase base(middle);
  const float scale = unit * base.multiple;
  const float inverse = InverseOrZero(scale);
  const auto targets = [&]<size_t... kIndex>(std::index_sequence<kIndex...> /*vectors*/) {
    return std::array<TrellisTarget<kDims>, kVectors>{TrellisTarget<kDims>(
        x.values + kIndex * kDims, x.weights + kIndex * kDims, inverse, base, grid.spread)...};
  }(std::make_index_sequence<kVectors>());
  const auto scales = [&]<size_t... kSign>(std::index_sequence<kSign...> /*signs*/) {
    return std::array<TriedScales<Params::kScales>, Params::kSigns>{
        ScalesNear<Params::kScales>(grid, base, static_cast<int>(kSign))...};
  }(std::make_index_sequence<Params::kSigns>());
  for (const TrellisCells* of : cells) {
    PointSearch<Params> search(*of, targets.data(), base);
    for (int sign = 0; sign < Params::kSigns; ++sign) {
      const TriedScales<Params::kScales>& tried = scales[static_cast<size_t>(sign)];
      typename PointSearch<Params>::Found found;
      search.Find(0, sign, tried, found);
      float first_half[Params::kScales];
      for (int s = 0; s < Params::kScales; ++s) first_half[s] = found.Error(s);
      const float least = *std::min_element(first_half, first_half + Params::kScales);
      if (100 * least > Params::kHopeless * group.first_half) continue;
      search.Find(1, sign, tried, found);
      for (int s = 0; s < Params::kScales; ++s) {
        const float error = found.Error(s);
        if (!(error < group.error)) continue;
        group.scale = tried.fields[s];
        group.error = error;
        group.first_half = first_half[s];
        group.cells = of;
        for (int v = 0; v < kVectors; ++v) group.points[v] = search.Point(found, sign, v, s);
      }
    }
  }
}

template <int kDims>
LevelSums SumsOf(const TrellisGroup& group, const LevelSamples& x) {
  LevelSums sums;
  for (int i = 0; i < 32; ++i) {
    const auto number = static_cast<float>(group.cells->Number(group.points[i / kDims], i % kDims));
    const float weighted = x.weights[i] * number;
    sums.product += weighted * x.values[i];
    sums.square += weighted * number;
  }
  return sums;
}

// Whether all weights are about equal, as they are without importances.
inline bool HasEvenWeights(const LevelSamples& x) {
  constexpr float kMost = 4;
  Floats most = Load(x.weights);
  Floats least = most;
  for (int i = kWidth; i < x.count; i += kWidth) {
    most = Max(Load(x.weights + i), most);
    least = Min(Load(x.weights + i), least);
  }
  return GreatestOf(most) <= -kMost * GreatestOf(-least);
}

// Each group's points are all of one of `cells`. Even, Uneven: the efforts for groups with such
// weights.
template <class Even, class Uneven>
TrellisRowFit SearchTrellisRow(const TrellisGrid& grid, std::span<const TrellisCells* const> cells,
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

  // Groups of zeros, or of values that are small beside the row's: the point next to zero, times
  // the least scale.
  constexpr float kZeros[32] = {};
  float ones[32];
  std::fill(std::begin(ones), std::end(ones), 1.0f);
  TrellisGroup zeros;
  TryScales<Even>(grid, cells, {kZeros, ones, kZeros, 32}, 0, 0, zeros);
  zeros.scale = grid.Nearest(0);

  double product = 0;
  double square = 0;
  for (size_t g = 0; g < middles.size(); ++g) {
    TrellisGroup group = zeros;
    const RowBlock& block = blocks[g / 8];
    const float unit = block.InUnit(fit.d);
    const float middle = middles[g] * InverseOrZero(unit);
    if (middles[g] != 0 && grid.Multiple(grid.Nearest(middle)) != 0) {
      const LevelSamples x = block.Group(static_cast<int>(g % 8), 32);
      group = {};
      const auto try_scales = HasEvenWeights(x) ? TryScales<Even> : TryScales<Uneven>;
      try_scales(grid, cells, x, unit, middle, group);
      const LevelSums sums = SumsOf<Even::kDims>(group, x);
      // The scale that is best for the points, if they are not all zero.
      if (sums.square > 0) group.scale = grid.Nearest(sums.product / (sums.square * unit));
      const double multiple = grid.Multiple(group.scale);
      product += block.heaviest * multiple * std::ldexp(double{sums.product}, block.unit.exponent);
      square += block.heaviest * multiple * multiple * double{sums.square};
    }
    TrellisFit& out = fit.blocks[g / 8];
    out.scales[g % 8] = static_cast<int16_t>(group.scale);
    constexpr size_t kPoints = 32 / Even::kDims;
    for (size_t i = 0; i < kPoints; ++i) {
      out.indices[g % 8 * kPoints + i] = group.cells->indices[static_cast<size_t>(group.points[i])];
    }
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

// Few leaves hold the nearest point where weights are even. Where they are uneven the point lies in
// any of many leaves, and scales are worth trying that leave out large values of little weight.
using EvenOfIq1Kt = TrellisEffort<8, 3, 2, 1, 1, 110>;
using UnevenOfIq1Kt = TrellisEffort<8, 3, 2, 1, 1, 100>;
using EvenOfIq2Kt = TrellisEffort<8, 3, 2, 1, 2, 105, CellDistance::kOfMean>;
using UnevenOfIq2Kt = TrellisEffort<8, 3, 2, 1, 2, 100, CellDistance::kOfMean>;
using EvenOfIq3Kt = TrellisEffort<8, 4, 1, 2, 3, 110>;
using UnevenOfIq3Kt = TrellisEffort<8, 4, 1, 2, 4, 110>;
using EvenOfIq4Kt = TrellisEffort<4, 6, 2, 1, 1, 115>;
using UnevenOfIq4Kt = TrellisEffort<4, 10, 2, 1, 1, 145>;

// The parts and spreads were found on random values with and without importances.
inline TrellisRowFit SearchIq1Kt(const float* values, const float* importance, int64_t count) {
  constexpr TrellisGrid kGrid = {kMultiplesOfIq2Kt, 127, 0, 1, 0.2f};
  const TrellisCells* const cells[] = {&CellsOfIq1Kt()};
  return SearchTrellisRow<EvenOfIq1Kt, UnevenOfIq1Kt>(kGrid, cells,
                                                      RowBlocks(values, importance, count));
}
inline TrellisRowFit SearchIq2Kt(const float* values, const float* importance, int64_t count) {
  constexpr TrellisGrid kGrid = {kMultiplesOfIq2Kt, 127, 0, 1, 0.2f};
  const TrellisCells* const cells[] = {&CellsOfIq2Kt()};
  return SearchTrellisRow<EvenOfIq2Kt, UnevenOfIq2Kt>(kGrid, cells,
                                                      RowBlocks(values, importance, count));
}

inline TrellisRowFit SearchIq3Kt(const float* values, const float* importance, int64_t count) {
  constexpr TrellisGrid kGrid = {kMultiplesOfIq3Kt, 14, 0.5f, 85, 0.2f};
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
  const TrellisCells* const cells[] = {&CellsOfIq3Kt()};
  TrellisRowFit fit = SearchTrellisRow<EvenOfIq3Kt, UnevenOfIq3Kt>(kGrid, cells, blocks);
  for (size_t g = 0; g < negative.size(); ++g) fit.blocks[g / 8].negative[g % 8] = negative[g];
  return fit;
}

inline TrellisRowFit SearchIq4Kt(const float* values, const float* importance, int64_t count) {
  constexpr TrellisGrid kGrid = {kMultiplesOfIq4Kt, 60, 1, 81, 0.22f};
  const TrellisCells* const cells[] = {&CellsOfIq4Kt(0), &CellsOfIq4Kt(1)};
  return SearchTrellisRow<EvenOfIq4Kt, UnevenOfIq4Kt>(kGrid, cells,
                                                      RowBlocks(values, importance, count));
}
