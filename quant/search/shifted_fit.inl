// The fits of quant/search/shifted_fit.h, included after quant/search/level_fit.inl.

// The number of units that are tried side by side, each in four lanes that take turns.
constexpr int kUnitsTogether = 4;

// Levels with and without the shift, and the start of the search for a group's scale: the value of
// largest magnitude is placed at `targets`.
template <int kCount, int kShiftsValue = 2>
struct ShiftedSearch {
  static constexpr int kShifts = kShiftsValue;
  // The number of factors of a row that are tried. Fewer suffice where stored scales are fine.
  static constexpr int kRowUnits = kCount == 16 ? 2 : kUnitsTogether;
  // The number of values of a block's d that are tried.
  static constexpr int kBlockUnits =
      kShifts == 2 && (kCount == 8 || kCount == 16) ? 2 : kUnitsTogether;
  static constexpr int kTargetsOfEnd = kCount == 16 ? 8 : 4;
  static constexpr int kTargets = 2 * kTargetsOfEnd;
  Levels<kCount> levels;
  float shift;
  float targets[kTargets * kShifts];  // without the shift, then the same with it
  // The parts of the farthest multiple of d that the group of largest scale may take.
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
  std::copy_n(search.targets, 2 * kTargetsOfEnd, search.targets + 2 * kTargetsOfEnd);
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

template <int kCount, int kShifts>
LanesOfSums<16> SumShifted(const ShiftedSearch<kCount, kShifts>& search, const TwoGroups& groups,
                           const float (&shifts)[16], const float (&inverses)[16]) {
  return SumInLanes(groups, inverses, [&](Floats y, int vector) {
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
  alignas(64) float shifts[kScales];
  alignas(64) float inverses[kScales];
  const float inverse = 1 / peak;
  for (int k = 0; k < kScales; k += kWidth) {
    Store(inverses + k, Load(search.targets + k) * inverse);
    Store(shifts + k, LanesFrom(k) >= Search::kTargets ? Splat(search.shift) : Floats{});
  }
  LevelScale best;
  const int lane = KeepBest(SumShifted(search, x, shifts, inverses), best);
  return {best.scale, lane >= Search::kTargets};
}

// The stored scale that a group chooses for a given unit, with the gain and the sums of that scale.
struct GroupChoice {
  int scale = 0;
  bool shifted = false;
  float gain = -std::numeric_limits<float>::infinity();
  LevelSums sums;
};

// Sixteen stored scales side by side, for one group or eight for each of two.
struct StoredScales {
  alignas(64) float ideals[16];
  alignas(64) float units[16];
  alignas(64) float shifts[16];
  alignas(64) float scales[16];  // integers of the grid
  alignas(64) float stored[16];  // times the unit
  alignas(64) float inverses[16];

  // The kMultiples multiples of the units next to the ideals, each in kUnits lanes in turn.
  template <int kMultiples, int kUnits>
  void Choose(const GroupScales& grid) {
    const float last = static_cast<float>((grid.max - grid.min) / grid.step);
    const float step = static_cast<float>(grid.step);
    const float least = static_cast<float>(grid.min);
    for (int k = 0; k < 16; k += kWidth) {
      const Floats unit = Load(units + k);
      const Floats wanted = (Load(ideals + k) * InverseOrZero(unit) - least) * (1 / step);
      const Floats below = Max(Min(wanted, Splat(last)), Floats{});
      const Ints multiple = (LanesFrom(k) / kUnits & (kMultiples - 1)) - (kMultiples / 2 - 1);
      const Floats number =
          __builtin_convertvector(__builtin_convertvector(below, Ints) + multiple, Floats);
      const Floats scale = Max(Min(number, Splat(last)), Floats{}) * step + least;
      Store(scales + k, scale);
      Store(stored + k, scale * unit);
      Store(inverses + k, InverseOrZero(scale * unit));
    }
  }

  // The choices with the greatest gains of kCount parts, which `find` tells apart.
  template <int kCount, class Find>
  void KeepBest(const LanesOfSums<16>& sums, Find find, GroupChoice* choices) const {
    alignas(64) float gains[16];
    for (int k = 0; k < 16; k += kWidth) {
      const Floats scale = Load(stored + k);
      const Floats product = Load(sums.products + k);
      Store(gains + k, scale * (product + product - scale * Load(sums.squares + k)));
    }
    int lanes[kCount];
    find(gains, lanes);
    for (int i = 0; i < kCount; ++i) {
      const int lane = lanes[i];
      choices[i] = {static_cast<int>(scales[lane]), shifts[lane] != 0.0f, gains[lane],
                    sums.At(lane)};
    }
  }
};

// Chooses a group's stored scale for each of kUnits units: of the multiples nearest to the ideal
// scale those that leave the greatest gain. Four units are tried with the shift of the ideal scale,
// one unit with and without the shift.
template <int kUnits, class Search>
void ChooseScales(const Search& search, const GroupScales& grid, const LevelSamples& x,
                  const float (&units)[kUnits], const GroupScale& ideal, GroupChoice* choices) {
  static_assert(kUnits == 1 || kUnits == kUnitsTogether);
  constexpr int kMultiples = kUnits == 1 ? 16 / Search::kShifts : 16 / kUnits;
  StoredScales lanes;
  for (int lane = 0; lane < 16; ++lane) {
    const bool shifted = kUnits == 1 ? lane >= kMultiples : ideal.shifted;
    lanes.ideals[lane] = ideal.scale;
    lanes.units[lane] = units[lane % kUnits];
    lanes.shifts[lane] = shifted ? search.shift : 0.0f;
  }
  lanes.Choose<kMultiples, kUnits>(grid);
  const LanesOfSums<16> sums = SumShifted(search, x, lanes.shifts, lanes.inverses);
  constexpr auto kFind = [](auto& gains, auto& found) { FindGreatest(gains, found); };
  lanes.KeepBest<kUnits>(sums, kFind, choices);
}

// Chooses the stored scales of two groups at once, with four multiples of each of two units, or of
// one unit with and without the shift. The choices of the first group come first.
template <int kUnits, class Search>
void ChooseScalesOfTwo(const Search& search, const GroupScales& grid, const TwoGroups& groups,
                       const float (&units)[kUnits], const GroupScale* ideals,
                       GroupChoice (&choices)[2 * kUnits]) {
  static_assert(kUnits == 2 || (kUnits == 1 && Search::kShifts == 2));
  constexpr int kMultiples = 4;
  StoredScales lanes;
  for (int lane = 0; lane < 16; ++lane) {
    const GroupScale& ideal = ideals[lane / 8];
    const bool shifted = kUnits == 1 ? lane % 8 >= kMultiples : ideal.shifted;
    lanes.ideals[lane] = ideal.scale;
    lanes.units[lane] = units[lane % 8 / 4 % kUnits];
    lanes.shifts[lane] = shifted ? search.shift : 0.0f;
  }
  lanes.Choose<kMultiples, 1>(grid);
  const LanesOfSums<16> sums = SumShifted(search, groups, lanes.shifts, lanes.inverses);
  constexpr auto kFind = [](auto& gains, auto& found) { FindGreatestOfParts(gains, found); };
  lanes.KeepBest<2 * kUnits>(sums, kFind, choices);
}

// Chooses the stored scales of two groups, at once or one after the other. kFirstUnits is the
// number of units that were tried first.
template <int kFirstUnits, int kUnits, class Search>
void ChooseOfPair(const Search& search, const GroupScales& grid, const TwoGroups& groups,
                  const float (&units)[kUnits], const GroupScale* ideals,
                  GroupChoice (&choices)[2 * kUnits]) {
  if constexpr (kUnits == 2 || (kFirstUnits == 2 && Search::kShifts == 2)) {
    ChooseScalesOfTwo(search, grid, groups, units, ideals, choices);
  } else {
    ChooseScales(search, grid, groups.lower, units, ideals[0], choices);
    ChooseScales(search, grid, groups.upper, units, ideals[1], choices + kUnits);
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

// The stored scales that the groups of a block choose for kUnits values of d.
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
    for (int g = 0; g < grid.groups(); g += 2) {
      const int begin = g * grid.group_values;
      const TwoGroups groups = {block.Part(begin, grid.group_values),
                                block.Part(begin + grid.group_values, grid.group_values)};
      GroupChoice choices[2 * kUnits];
      ChooseOfPair<Search::kBlockUnits>(search, grid, groups, units, ideals + g, choices);
      for (int i = 0; i < 2 * kUnits; ++i) {
        const int u = i % kUnits;
        const GroupChoice& choice = choices[i];
        const float multiple = static_cast<float>(choice.scale);
        scales[u][g + i / kUnits] = static_cast<int16_t>(choice.scale);
        shifted[u][g + i / kUnits] = choice.shifted;
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
  constexpr int kUnits = ShiftedSearch<kCount, kShifts>::kBlockUnits;
  float wanted[kUnits];
  for (int u = 0; u < kUnits; ++u) {
    const float part = search.parts[u * (kUnitsTogether / kUnits)];
    wanted[u] = largest / (part * static_cast<float>(grid.min));
  }
  const ShiftedUnits<kUnits> first(search, grid, block, ideals, wanted);
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
    for (int u = 0; u < kUnits; ++u) wanted[u] = first.Refitted(u);
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
