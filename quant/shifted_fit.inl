// The fits of quant/shifted_fit.h, included after quant/level_fit.inl.

// So many units are tried side by side, each in four lanes that take turns.
constexpr int kUnitsTogether = 4;

// Levels with and without the shift, and where the search for a group's scale begins: the value of
// largest magnitude is placed at these targets.
template <int kCount, int kShiftsValue = 2>
struct ShiftedSearch {
  static constexpr int kShifts = kShiftsValue;
  static constexpr int kTargetsOfEnd = kCount == 16 ? 8 : 4;
  static constexpr int kTargets = 2 * kTargetsOfEnd;
  Levels<kCount> levels;
  float shift;
  float targets[kTargets];
  // The group of largest scale takes so much of the farthest multiple of d.
  float parts[kUnitsTogether];
};

template <int kCount>
constexpr ShiftedSearch<kCount> MakeSearch(const ShiftedLevels<kCount>& table, LevelCurve curve) {
  ShiftedSearch<kCount> search{};
  search.levels = MakeLevels(table.levels, curve);
  search.shift = static_cast<float>(table.shift);
  for (int u = 0; u < kUnitsTogether; ++u) {
    const float of_unit = static_cast<float>(u);
    search.parts[u] = kCount <= 4 ? 1.03f - 0.05f * of_unit : 1.0f - 0.04f * of_unit;
  }
  // More levels leave less to gain from cutting off the largest value.
  const float first = kCount <= 4 ? 0.68f : kCount <= 8 ? 0.82f : kCount <= 16 ? 0.88f : 0.975f;
  const float last = kCount <= 4 ? 1.72f : kCount <= 8 ? 1.42f : kCount <= 16 ? 1.2f : 1.06f;
  constexpr int kTargetsOfEnd = ShiftedSearch<kCount>::kTargetsOfEnd;
  const float apart = (last - first) / static_cast<float>(kTargetsOfEnd - 1);
  for (int k = 0; k < kTargetsOfEnd; ++k) {
    const float part = first + apart * static_cast<float>(k);
    search.targets[k] = part * static_cast<float>(table.levels[0]);
    search.targets[kTargetsOfEnd + k] = part * static_cast<float>(table.levels[kCount - 1]);
  }
  return search;
}

// IQ4_XS, whose levels have no shift.
constexpr ShiftedSearch<16, 1> kSearchIq4 = {
    kIq4,
    0,
    {-99, 86, -107, 95, -114, 104, -122, 113, -130, 122, -137, 131, -145, 140, -152, 149},
    {1.0f, 0.97f, 0.94f, 0.91f}};

constexpr ShiftedSearch<4> kSearch2 = MakeSearch(kShiftedLevels2, {});
constexpr ShiftedSearch<8> kSearch3 =
    MakeSearch(kShiftedLevels3, {0.08865f, 0.000465675f, 3.86635f});
constexpr ShiftedSearch<16> kSearch4 =
    MakeSearch(kShiftedLevels4, {0.08985f, 0.000231585f, 7.84375f});
constexpr ShiftedSearch<32> kSearch5 =
    MakeSearch(kShiftedLevels5, {0.179f, 0.0004367665f, 15.91732f});
constexpr ShiftedSearch<64> kSearch6 = MakeSearch(
    kShiftedLevels6, {0.380025537f, 0.00117078f, 32.77968f, -0.0000726917f, 0.00000119230223f});
static_assert(CurveFits(kSearch3.levels) && CurveFits(kSearch4.levels));
static_assert(CurveFits(kSearch5.levels) && CurveFits(kSearch6.levels));

constexpr GroupScales kScalesOfIq2K = {16, -8, 7, 1};
constexpr GroupScales kScalesOfIq3K = {16, -31, 31, 2};
constexpr GroupScales kScalesOfIq4K = {16, -32, 31, 1};
constexpr GroupScales kScalesOfIq6K = {16, -128, 127, 1};

// sum w x l and sum w l l of the nearest levels l, in lane k all of them greater by shifts[k].
template <int kCount, int kShifts, int kScales>
LanesOfSums<kScales> SumShifted(const ShiftedSearch<kCount, kShifts>& search, const LevelSamples& x,
                                const float (&shifts)[kScales], const float (&inverses)[kScales]) {
  if constexpr (kShifts == 1) return SumLevels(search.levels, x, inverses);
  return SumInLanes(x, inverses, [&](Floats y, int vector) {
    const Floats shift = Load(shifts + vector * kWidth);
    return search.levels.Nearest(y - shift) + shift;
  });
}

// A group's scale if it could be any number.
struct GroupScale {
  float scale = 0;
  bool shifted = false;
};

// The best of the scales that place the peak at the targets, after least squares. To look around it
// as well changes nothing, since stored scales are multiples of a unit.
template <class Search>
GroupScale SearchShiftedScale(const Search& search, const LevelSamples& x, float peak) {
  constexpr int kScales = Search::kTargets * Search::kShifts;
  alignas(64) float shifts[kScales] = {};
  alignas(64) float inverses[kScales];
  const float inverse = 1 / peak;
  for (int k = 0; k < kScales; ++k) {
    inverses[k] = search.targets[k % Search::kTargets] * inverse;
    if (k >= Search::kTargets) shifts[k] = search.shift;
  }
  LevelScale best;
  const int lane = KeepBest(SumShifted(search, x, shifts, inverses), best);
  return {best.scale, lane >= Search::kTargets};
}

// What a group makes of a given unit, and the gain and the sums of that.
struct GroupChoice {
  int scale = 0;
  bool shifted = false;
  float gain = -std::numeric_limits<float>::infinity();
  LevelSums sums;
};

// What a group makes of kUnits units: of the nearest multiples to the ideal scale those that leave
// the greatest gain. Of four units, with the shift of the ideal scale; of one, with and without.
template <int kUnits, class Search>
void ChooseScales(const Search& search, const GroupScales& grid, const LevelSamples& x,
                  const float (&units)[kUnits], const GroupScale& ideal,
                  GroupChoice (&choices)[kUnits]) {
  static_assert(kUnits == 1 || kUnits == kUnitsTogether);
  constexpr int kMultiples = kUnits == 1 ? 16 / Search::kShifts : 16 / kUnits;
  const float last = static_cast<float>((grid.max - grid.min) / grid.step);
  const float step = static_cast<float>(grid.step);
  const float least = static_cast<float>(grid.min);
  alignas(64) float units_of_lanes[16];
  alignas(64) float inverses_of_units[16];
  for (int lane = 0; lane < 16; ++lane) {
    units_of_lanes[lane] = units[lane % kUnits];
    inverses_of_units[lane] = InverseOrZero(units[lane % kUnits]);
  }
  alignas(64) float scales[16];
  alignas(64) float stored[16];
  alignas(64) float shifts[16] = {};
  alignas(64) float inverses[16];
  for (int k = 0; k < 16; k += kWidth) {
    const Floats wanted = (ideal.scale * Load(inverses_of_units + k) - least) * (1 / step);
    const Floats below = Max(Min(wanted, Splat(last)), Floats{});
    const Ints multiple = (LanesFrom(k) / kUnits & (kMultiples - 1)) - (kMultiples / 2 - 1);
    const Floats number =
        __builtin_convertvector(__builtin_convertvector(below, Ints) + multiple, Floats);
    const Floats scale = Max(Min(number, Splat(last)), Floats{}) * step + least;
    const Floats in_unit = scale * Load(units_of_lanes + k);
    Store(scales + k, scale);
    Store(stored + k, in_unit);
    Store(inverses + k, Sizes(in_unit) >= 0x1p-126f ? 1.0f / in_unit : Floats{});
  }
  if constexpr (Search::kShifts == 2) {
    for (int lane = 0; lane < 16; ++lane) {
      if (kUnits == 1 ? lane >= kMultiples : ideal.shifted) shifts[lane] = search.shift;
    }
  }
  const LanesOfSums<16> sums = SumShifted(search, x, shifts, inverses);
  alignas(64) float gains[16];
  for (int k = 0; k < 16; k += kWidth) {
    const Floats scale = Load(stored + k);
    const Floats product = Load(sums.products + k);
    Store(gains + k, scale * (product + product - scale * Load(sums.squares + k)));
  }
  int lanes[kUnits];
  FindGreatest(gains, lanes);
  for (int u = 0; u < kUnits; ++u) {
    choices[u] = {static_cast<int>(scales[lanes[u]]), shifts[lanes[u]] != 0.0f, gains[lanes[u]],
                  sums.At(lanes[u])};
  }
}

// The codes of a group for a stored scale.
template <int kCount, int kShifts>
void StoreShifted(const ShiftedSearch<kCount, kShifts>& search, const LevelSamples& x, float scale,
                  bool shifted, uint8_t* codes) {
  const Floats inverse = Splat(InverseOrZero(scale));
  const Floats shift = Splat(shifted ? search.shift : 0.0f);
  for (int i = 0; i < x.count; i += kWidth) {
    StoreBytes(codes + i, search.levels.Number(Load(x.values + i) * inverse - shift));
  }
}

// What the groups of a block make of kUnits values of d.
template <int kUnits>
struct ShiftedUnits {
  PackedHalf d[kUnits];
  float units[kUnits];
  int16_t scales[kUnits][16];
  bool shifted[kUnits][16];
  float gains[kUnits] = {};
  float products[kUnits] = {};
  float squares[kUnits] = {};

  template <class Search>
  ShiftedUnits(const Search& search, const GroupScales& grid, const UnitBlock& block,
               const GroupScale* ideals, const float (&wanted)[kUnits]) {
    for (int u = 0; u < kUnits; ++u) {
      d[u] = block.StoreScale(wanted[u]);
      units[u] = block.Load(d[u]);
    }
    for (int g = 0; g < grid.groups(); ++g) {
      const int begin = g * grid.group_values;
      GroupChoice choices[kUnits];
      ChooseScales(search, grid, block.Part(begin, grid.group_values), units, ideals[g], choices);
      for (int u = 0; u < kUnits; ++u) {
        const GroupChoice& choice = choices[u];
        const float multiple = static_cast<float>(choice.scale);
        scales[u][g] = static_cast<int16_t>(choice.scale);
        shifted[u][g] = choice.shifted;
        gains[u] += choice.gain;
        products[u] += multiple * choice.sums.product;
        squares[u] += multiple * multiple * choice.sums.square;
      }
    }
  }

  int Best() const {
    int best = 0;
    for (int u = 1; u < kUnits; ++u) best = gains[u] > gains[best] ? u : best;
    return best;
  }
  // The d that would serve the levels of unit u best.
  float Refitted(int u) const { return squares[u] > 0 ? products[u] / squares[u] : units[u]; }

  void Keep(int u, int groups, ShiftedFit& fit) const {
    fit.d = d[u];
    std::copy_n(scales[u], groups, fit.scales);
    std::copy_n(shifted[u], groups, fit.shifted);
  }
};

template <int kCount, int kShifts>
ShiftedFit SearchShifted(const ShiftedSearch<kCount, kShifts>& search, const GroupScales& grid,
                         const float* values, const float* importance) {
  ShiftedFit best{};
  for (int16_t& scale : best.scales) scale = static_cast<int16_t>(grid.max);
  const UnitBlock block(values, importance, 256);
  if (block.all_zero) return best;
  auto group = [&](int g) {
    const int begin = g * grid.group_values;
    return block.Part(begin, grid.group_values);
  };
  GroupScale ideals[16] = {};
  float largest = 0;
  for (int g = 0; g < grid.groups(); ++g) {
    const float peak = PeakOf(group(g));
    if (std::fabs(peak) < 0x1p-60f) continue;
    ideals[g] = SearchShiftedScale(search, group(g), peak);
    if (std::fabs(ideals[g].scale) > std::fabs(largest)) largest = ideals[g].scale;
  }
  float wanted[kUnitsTogether];
  for (int u = 0; u < kUnitsTogether; ++u) {
    wanted[u] = largest / (search.parts[u] * static_cast<float>(grid.min));
  }
  const ShiftedUnits<kUnitsTogether> first(search, grid, block, ideals, wanted);
  const int at = first.Best();
  first.Keep(at, grid.groups(), best);
  float best_gain = first.gains[at];
  auto refit = [&](const auto& wanted_then) {
    const ShiftedUnits then(search, grid, block, ideals, wanted_then);
    if (then.gains[then.Best()] > best_gain) {
      best_gain = then.gains[then.Best()];
      then.Keep(then.Best(), grid.groups(), best);
    }
    return then;
  };
  if constexpr (kShifts == 1) {
    for (int u = 0; u < kUnitsTogether; ++u) wanted[u] = first.Refitted(u);
    refit(wanted);
  } else {
    const float refitted[] = {first.Refitted(at)};
    refit(refitted);
  }
  const float unit = block.Load(best.d);
  for (int g = 0; g < grid.groups(); ++g) {
    StoreShifted(search, group(g), unit * static_cast<float>(best.scales[g]), best.shifted[g],
                 best.codes + g * grid.group_values);
  }
  return best;
}

inline Iq4XsFit SearchIq4Xs(const float* values, const float* importance) {
  const ShiftedFit found = SearchShifted(kSearchIq4, {32, -32, 31, 1}, values, importance);
  Iq4XsFit fit{};
  if (found.d.bits() == 0) return fit;
  fit.d = found.d;
  std::copy_n(found.scales, 8, fit.scales);
  std::copy_n(found.codes, 256, fit.codes);
  return fit;
}

inline ShiftedFit SearchIq2K(const float* values, const float* importance) {
  return SearchShifted(kSearch2, kScalesOfIq2K, values, importance);
}
inline ShiftedFit SearchIq3K(const float* values, const float* importance) {
  return SearchShifted(kSearch3, kScalesOfIq3K, values, importance);
}
inline ShiftedFit SearchIq4K(const float* values, const float* importance) {
  return SearchShifted(kSearch4, kScalesOfIq4K, values, importance);
}
inline ShiftedFit SearchIq5K(const float* values, const float* importance) {
  return SearchShifted(kSearch5, kScalesOfIq4K, values, importance);
}
inline ShiftedFit SearchIq6K(const float* values, const float* importance) {
  return SearchShifted(kSearch6, kScalesOfIq6K, values, importance);
}

// ---- Rows with a factor of their own -----------------------------------------------------------

constexpr GroupScales kScalesOfIq2Ks = {32, -16, 15, 1};
constexpr GroupScales kScalesOfIq4Ks = {32, -127, 127, 2};

// A block of a row: its values, and what its weights were divided by.
struct RowBlock {
  UnitBlock unit;
  double heaviest = 1;
  GroupScale ideals[16] = {};

  RowBlock(const float* values, const float* importance) : unit(values, importance, 256) {
    float largest = 0;
    for (int i = 0; importance != nullptr && i < 256; ++i) {
      if (std::isfinite(importance[i])) largest = std::max(largest, importance[i]);
    }
    if (largest > 0) heaviest = double{largest};
  }

  LevelSamples Group(int g, int count) const { return unit.Part(g * count, count); }
  // What a factor of the row is in the block's unit.
  float InUnit(float d) const { return std::ldexp(d, -unit.exponent); }
};

// A number that a row's head holds, 0 only for 0, with which all values are finite.
template <class Head>
float StoredFactor(double d) {
  const double least = std::is_same_v<Head, HalfHead> ? 0x1p-24 : 0x1p-126;
  const double greatest = std::is_same_v<Head, HalfHead> ? 65504.0 : 0x1p113;
  const double size = std::clamp(std::fabs(d), least, greatest);
  return Head::Of(static_cast<float>(std::copysign(size, d))).value();
}

// The row's blocks for given factors; their gains, and the factors that would fit the codes best.
template <int kUnits>
struct RowUnits {
  float d[kUnits];
  std::vector<ShiftedFit> blocks[kUnits];  // without codes
  double gains[kUnits] = {};
  double products[kUnits] = {};
  double squares[kUnits] = {};

  template <class Search>
  RowUnits(const Search& search, const GroupScales& grid, const std::vector<RowBlock>& row,
           const std::vector<ShiftedFit>& zeros, const float (&factors)[kUnits]) {
    for (int u = 0; u < kUnits; ++u) {
      d[u] = factors[u];
      blocks[u] = zeros;
    }
    for (size_t b = 0; b < row.size(); ++b) {
      if (!row[b].unit.all_zero) Add(search, grid, row[b], b);
    }
  }

 private:
  template <class Search>
  void Add(const Search& search, const GroupScales& grid, const RowBlock& block, size_t b) {
    float units[kUnits];
    for (int u = 0; u < kUnits; ++u) units[u] = block.InUnit(d[u]);
    double gain[kUnits] = {};
    double product[kUnits] = {};
    double square[kUnits] = {};
    for (int g = 0; g < grid.groups(); ++g) {
      GroupChoice choices[kUnits];
      ChooseScales(search, grid, block.Group(g, grid.group_values), units, block.ideals[g],
                   choices);
      for (int u = 0; u < kUnits; ++u) {
        blocks[u][b].scales[g] = static_cast<int16_t>(choices[u].scale);
        blocks[u][b].shifted[g] = choices[u].shifted;
        const double multiple = choices[u].scale;
        gain[u] += double{choices[u].gain};
        product[u] += multiple * double{choices[u].sums.product};
        square[u] += multiple * multiple * double{choices[u].sums.square};
      }
    }
    for (int u = 0; u < kUnits; ++u) {
      gains[u] += block.heaviest * std::ldexp(gain[u], 2 * block.unit.exponent);
      products[u] += block.heaviest * std::ldexp(product[u], block.unit.exponent);
      squares[u] += block.heaviest * square[u];
    }
  }
};

// The blocks of a row with the scales that their groups would have if they could be any numbers;
// the largest of these.
template <class Search>
double IdealScales(const Search& search, const GroupScales& grid, std::vector<RowBlock>& blocks) {
  double largest = 0;
  for (RowBlock& block : blocks) {
    if (block.unit.all_zero) continue;
    for (int g = 0; g < grid.groups(); ++g) {
      const LevelSamples x = block.Group(g, grid.group_values);
      const float peak = PeakOf(x);
      if (std::fabs(peak) < 0x1p-60f) continue;
      block.ideals[g] = SearchShiftedScale(search, x, peak);
      const double scale = std::ldexp(double{block.ideals[g].scale}, block.unit.exponent);
      if (std::fabs(scale) > std::fabs(largest)) largest = scale;
    }
  }
  return largest;
}

// The code of the level next to zero.
template <int kCount, int kShifts>
uint8_t NearestToZero(const ShiftedSearch<kCount, kShifts>& search) {
  return static_cast<uint8_t>(search.levels.Number(Floats{})[0]);
}

template <class Head, class Search>
ShiftedRowFit SearchShiftedRow(const Search& search, const GroupScales& grid, const float* values,
                               const float* importance, int64_t count) {
  std::vector<RowBlock> blocks;
  blocks.reserve(static_cast<size_t>(count / 256));
  for (int64_t i = 0; i < count; i += 256) {
    blocks.emplace_back(values + i, importance == nullptr ? nullptr : importance + i);
  }
  // Groups of zeros: the level next to zero, times the least scale.
  ShiftedFit zeros{};
  const int least = grid.step == 2 ? 1 : 0;
  for (int16_t& scale : zeros.scales) scale = static_cast<int16_t>(least);
  std::fill(std::begin(zeros.codes), std::end(zeros.codes), NearestToZero(search));
  ShiftedRowFit best{0, std::vector<ShiftedFit>(blocks.size(), zeros)};
  const double largest = IdealScales(search, grid, blocks);
  if (largest == 0) return best;

  float factors[kUnitsTogether];
  for (int u = 0; u < kUnitsTogether; ++u) {
    factors[u] = StoredFactor<Head>(largest / double{search.parts[u]} / grid.min);
  }
  RowUnits<kUnitsTogether> first(search, grid, blocks, best.blocks, factors);
  int at = 0;
  for (int u = 1; u < kUnitsTogether; ++u) at = first.gains[u] > first.gains[at] ? u : at;
  if (first.squares[at] > 0) {
    const float refitted[] = {StoredFactor<Head>(first.products[at] / first.squares[at])};
    RowUnits<1> second(search, grid, blocks, best.blocks, refitted);
    if (second.gains[0] > first.gains[at]) best = {second.d[0], std::move(second.blocks[0])};
  }
  if (best.d == 0) best = {first.d[at], std::move(first.blocks[at])};
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b].unit.all_zero) continue;
    for (int g = 0; g < grid.groups(); ++g) {
      StoreShifted(search, blocks[b].Group(g, grid.group_values),
                   blocks[b].InUnit(best.d) * static_cast<float>(best.blocks[b].scales[g]),
                   best.blocks[b].shifted[g], best.blocks[b].codes + g * grid.group_values);
    }
  }
  return best;
}

inline ShiftedRowFit SearchIq2Ks(const float* values, const float* importance, int64_t count) {
  return SearchShiftedRow<HalfHead>(kSearch2, kScalesOfIq2Ks, values, importance, count);
}
inline ShiftedRowFit SearchIq3Ks(const float* values, const float* importance, int64_t count) {
  return SearchShiftedRow<HalfHead>(kSearch3, kScalesOfIq2Ks, values, importance, count);
}
inline ShiftedRowFit SearchIq4Ks(const float* values, const float* importance, int64_t count) {
  return SearchShiftedRow<FloatHead>(kSearch4, kScalesOfIq4Ks, values, importance, count);
}
inline ShiftedRowFit SearchIq5Ks(const float* values, const float* importance, int64_t count) {
  return SearchShiftedRow<FloatHead>(kSearch5, kScalesOfIq4Ks, values, importance, count);
}

// Of four codes whose bits are odd in number, the one whose other neighbour costs least gives way.
inline void MakeEven(const ShiftedLevels<16>& table, const RowBlock& block, float scale,
                     bool shifted, const int (&places)[4], uint8_t* codes) {
  int bits = 0;
  for (const int place : places) bits += std::popcount(codes[place]);
  if (bits % 2 == 0) return;
  double least = std::numeric_limits<double>::infinity();
  int at = places[0];
  uint8_t replaced = codes[at];
  for (const int place : places) {
    const auto cost = [&](int code) {
      const double error = double{block.unit.values[place]} -
                           double{scale} * table.Get(code, static_cast<uint32_t>(shifted));
      return double{block.unit.weights[place]} * error * error;
    };
    for (int code = 0; code < 16; ++code) {
      if ((std::popcount(static_cast<unsigned>(code)) + std::popcount(codes[place])) % 2 == 0) {
        continue;
      }
      const double more = cost(code) - cost(codes[place]);
      if (more >= least) continue;
      least = more;
      at = place;
      replaced = static_cast<uint8_t>(code);
    }
  }
  codes[at] = replaced;
}

inline ShiftedRowFit SearchIq4Kss(const float* values, const float* importance, int64_t count) {
  ShiftedRowFit fit = SearchIq4Ks(values, importance, count);
  for (size_t b = 0; b < fit.blocks.size(); ++b) {
    const int64_t begin = static_cast<int64_t>(b) * 256;
    const RowBlock block(values + begin, importance == nullptr ? nullptr : importance + begin);
    if (block.unit.all_zero) continue;  // four times the same code
    ShiftedFit& of_block = fit.blocks[b];
    for (int i = 0; i < 256; i += i % 16 == 14 ? 18 : 2) {
      const float scale = block.InUnit(fit.d) * static_cast<float>(of_block.scales[i / 32]);
      MakeEven(kShiftedLevels4, block, scale, of_block.shifted[i / 32], {i, i + 1, i + 16, i + 17},
               of_block.codes);
    }
  }
  return fit;
}
