// The fits of quant/shifted_fit.h, included after quant/level_fit.inl.

// Levels with and without the shift, and where the search for a group's scale begins: the value of
// largest magnitude is placed at the first and at the last level times 1 + k * step.
template <int kCount>
struct ShiftedSearch {
  static constexpr int kShifts = 2;
  Levels<kCount> levels;
  float shift;
  float ends[2];
  int first;
  int last;
  float step;
};

// The more levels, the less there is to gain from cutting off the largest value.
template <int kCount>
constexpr ShiftedSearch<kCount> MakeSearch(const ShiftedLevels<kCount>& table) {
  ShiftedSearch<kCount> search{};
  search.levels = MakeLevels(table.levels);
  search.shift = static_cast<float>(table.shift);
  search.ends[0] = table.levels[0];
  search.ends[1] = table.levels[kCount - 1];
  search.first = kCount <= 4 ? -4 : kCount <= 16 ? -3 : -1;
  search.last = kCount <= 4 ? 9 : kCount <= 8 ? 7 : kCount <= 16 ? 5 : kCount <= 32 ? 3 : 2;
  search.step = kCount <= 4 ? 0.08f : kCount <= 8 ? 0.06f : kCount <= 16 ? 0.04f : 0.025f;
  return search;
}

constexpr ShiftedSearch<4> kSearch2 = MakeSearch(kShiftedLevels2);
constexpr ShiftedSearch<8> kSearch3 = MakeSearch(kShiftedLevels3);
constexpr ShiftedSearch<16> kSearch4 = MakeSearch(kShiftedLevels4);
constexpr ShiftedSearch<32> kSearch5 = MakeSearch(kShiftedLevels5);
constexpr ShiftedSearch<64> kSearch6 = MakeSearch(kShiftedLevels6);

constexpr GroupScales kScalesOfIq2K = {16, -8, 7, 1};
constexpr GroupScales kScalesOfIq3K = {16, -31, 31, 2};
constexpr GroupScales kScalesOfIq4K = {16, -32, 31, 1};
constexpr GroupScales kScalesOfIq6K = {16, -128, 127, 1};

// sum w x l and sum w l l of the nearest levels l, all of them greater by `shift`.
template <int kCount>
LevelSums SumShifted(const ShiftedSearch<kCount>& search, float shift, const LevelSamples& x,
                     float inverse_scale) {
  LaneSum product;
  LaneSum square;
  const Floats inverse = Splat(inverse_scale);
  const Floats more = Splat(shift);
  for (int i = 0; i < x.count; i += kWidth) {
    const Floats value = Load(x.values + i);
    const Floats level = search.levels.Nearest(value * inverse - more) + more;
    const Floats weighted = Load(x.weights + i) * level;
    product.Add(i, weighted * value);
    square.Add(i, weighted * level);
  }
  return {product.Total(), square.Total()};
}

// The scale of a group if it could be any number.
template <class Search>
float SearchShiftedScale(const Search& search, const LevelSamples& x, float peak) {
  LevelScale best;
  auto consider = [&](float shift, float inverse_scale) {
    const LevelSums sums = SumShifted(search, shift, x, inverse_scale);
    const float scale = sums.BestScale();
    if (sums.Gain(scale) > best.gain) best = {scale, sums.Gain(scale)};
  };
  for (int n = 0; n < Search::kShifts; ++n) {
    const float shift = n == 0 ? 0.0f : search.shift;
    for (const float end : search.ends) {
      for (int k = search.first; k <= search.last; ++k) {
        consider(shift, end * (1 + search.step * static_cast<float>(k)) / peak);
      }
    }
    if (best.scale != 0) consider(shift, 1 / best.scale);
  }
  return best.scale;
}

// What a group makes of a given unit, and the gain and the sums of that.
struct GroupChoice {
  int scale = 0;
  bool shifted = false;
  float gain = -std::numeric_limits<float>::infinity();
  LevelSums sums;
};

// The nearest multiples of `unit` to the ideal scale, with and without the shift.
template <class Search>
GroupChoice ChooseScale(const Search& search, const GroupScales& grid, const LevelSamples& x,
                        float unit, float ideal) {
  const float least = static_cast<float>(grid.min);
  const float greatest = static_cast<float>(grid.max);
  const float multiple = std::clamp(ideal * InverseOrZero(unit), least, greatest);
  const int middle =
      static_cast<int>(std::lround((multiple - least) / static_cast<float>(grid.step)));
  GroupChoice best;
  for (int n = middle - 1; n <= middle + 1; ++n) {
    const int scale = grid.min + n * grid.step;
    if (scale < grid.min || scale > grid.max) continue;
    const float stored = unit * static_cast<float>(scale);
    for (int k = 0; k < Search::kShifts; ++k) {
      const bool shifted = k == 1;
      const LevelSums sums =
          SumShifted(search, shifted ? search.shift : 0.0f, x, InverseOrZero(stored));
      const float gain = sums.Gain(stored);
      if (gain > best.gain) best = {scale, shifted, gain, sums};
    }
  }
  return best;
}

// The codes of a group for a stored scale.
template <int kCount>
void StoreShifted(const ShiftedSearch<kCount>& search, const LevelSamples& x, float scale,
                  bool shifted, uint8_t* codes) {
  const float inverse = InverseOrZero(scale);
  const float shift = shifted ? search.shift : 0.0f;
  for (int i = 0; i < x.count; ++i) {
    const float level = x.values[i] * inverse - shift;
    int code = 0;
    for (const float border : search.levels.borders) code += static_cast<int>(level > border);
    codes[i] = static_cast<uint8_t>(code);
  }
}

template <int kCount>
ShiftedFit SearchShifted(const ShiftedSearch<kCount>& search, const GroupScales& grid,
                         const float* values, const float* importance) {
  ShiftedFit best{};
  for (int16_t& scale : best.scales) scale = static_cast<int16_t>(grid.max);
  const UnitValues block(values, importance, 256);
  if (block.all_zero) return best;
  auto group = [&](int g) {
    const int begin = g * grid.group_values;
    return LevelSamples{block.values + begin, block.weights + begin, grid.group_values};
  };
  float ideals[16] = {};
  float largest = 0;
  for (int g = 0; g < grid.groups(); ++g) {
    const float peak = PeakOf(group(g));
    if (std::fabs(peak) < 0x1p-60f) continue;
    ideals[g] = SearchShiftedScale(search, group(g), peak);
    if (std::fabs(ideals[g]) > std::fabs(largest)) largest = ideals[g];
  }

  // The group of largest scale takes one of the far multiples of d.
  float best_gain = -std::numeric_limits<float>::infinity();
  auto consider = [&](float unit) {
    ShiftedFit fit{};
    fit.d = block.StoreScale(unit);
    unit = block.Load(fit.d);
    float gain = 0;
    float product = 0;
    float square = 0;
    for (int g = 0; g < grid.groups(); ++g) {
      const GroupChoice choice = ChooseScale(search, grid, group(g), unit, ideals[g]);
      const float multiple = static_cast<float>(choice.scale);
      fit.scales[g] = static_cast<int16_t>(choice.scale);
      fit.shifted[g] = choice.shifted;
      gain += choice.gain;
      product += multiple * choice.sums.product;
      square += multiple * multiple * choice.sums.square;
    }
    if (gain > best_gain) {
      best_gain = gain;
      best = fit;
    }
    return square > 0 ? product / square : 0;
  };
  for (const float part : {1.0f, 0.9375f, 0.875f}) {
    const float refitted = consider(largest / (part * static_cast<float>(grid.min)));
    if (refitted != 0) consider(refitted);
  }
  const float unit = block.Load(best.d);
  for (int g = 0; g < grid.groups(); ++g) {
    StoreShifted(search, group(g), unit * static_cast<float>(best.scales[g]), best.shifted[g],
                 best.codes + g * grid.group_values);
  }
  return best;
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
  UnitValues unit;
  double heaviest = 1;
  float ideals[16] = {};

  RowBlock(const float* values, const float* importance) : unit(values, importance, 256) {
    float largest = 0;
    for (int i = 0; importance != nullptr && i < 256; ++i) {
      if (std::isfinite(importance[i])) largest = std::max(largest, importance[i]);
    }
    if (largest > 0) heaviest = double{largest};
  }

  LevelSamples Group(int g, int count) const {
    return {unit.values + g * count, unit.weights + g * count, count};
  }
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

// The row's blocks for a given factor; their gain, and the factor that would fit the codes best.
struct RowChoice {
  double gain = 0;
  double product = 0;
  double square = 0;
};
template <class Search>
RowChoice ChooseRow(const Search& search, const GroupScales& grid,
                    const std::vector<RowBlock>& blocks, ShiftedRowFit& fit) {
  RowChoice row;
  for (size_t b = 0; b < blocks.size(); ++b) {
    const RowBlock& block = blocks[b];
    ShiftedFit& out = fit.blocks[b];
    if (block.unit.all_zero) continue;
    const float unit = block.InUnit(fit.d);
    double gain = 0;
    double product = 0;
    double square = 0;
    for (int g = 0; g < grid.groups(); ++g) {
      const LevelSamples x = block.Group(g, grid.group_values);
      const GroupChoice choice = ChooseScale(search, grid, x, unit, block.ideals[g]);
      out.scales[g] = static_cast<int16_t>(choice.scale);
      out.shifted[g] = choice.shifted;
      const double multiple = choice.scale;
      gain += double{choice.gain};
      product += multiple * double{choice.sums.product};
      square += multiple * multiple * double{choice.sums.square};
    }
    row.gain += block.heaviest * std::ldexp(gain, 2 * block.unit.exponent);
    row.product += block.heaviest * std::ldexp(product, block.unit.exponent);
    row.square += block.heaviest * square;
  }
  return row;
}

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
      const double scale = std::ldexp(double{block.ideals[g]}, block.unit.exponent);
      if (std::fabs(scale) > std::fabs(largest)) largest = scale;
    }
  }
  return largest;
}

// The code of the level next to zero.
template <int kCount>
uint8_t NearestToZero(const ShiftedSearch<kCount>& search) {
  const auto& borders = search.levels.borders;
  return static_cast<uint8_t>(std::count_if(std::begin(borders), std::end(borders),
                                            [](float border) { return border < 0; }));
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

  double best_gain = -std::numeric_limits<double>::infinity();
  ShiftedRowFit fit = best;
  auto consider = [&](double d) {
    fit.d = StoredFactor<Head>(d);
    const RowChoice row = ChooseRow(search, grid, blocks, fit);
    if (row.gain > best_gain) {
      best_gain = row.gain;
      best = fit;
    }
    return row.square > 0 ? row.product / row.square : 0;
  };
  for (const double part : {1.0, 0.9375, 0.875}) {
    const double refitted = consider(largest / (part * grid.min));
    if (refitted != 0) consider(refitted);
  }
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
