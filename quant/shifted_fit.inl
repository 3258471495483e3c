// The fits of quant/shifted_fit.h, included after quant/level_fit.inl.

// Levels with and without the shift, and where the search for a group's scale begins: the value of
// largest magnitude is placed at the first and at the last level times 1 + k * step.
template <int kCount>
struct ShiftedSearch {
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
LevelSums SumShifted(const Levels<kCount>& levels, float shift, const LevelSamples& x,
                     float inverse_scale) {
  LaneSum product;
  LaneSum square;
  const Floats inverse = Splat(inverse_scale);
  const Floats more = Splat(shift);
  for (int i = 0; i < x.count; i += kWidth) {
    const Floats value = Load(x.values + i);
    const Floats level = levels.Nearest(value * inverse - more) + more;
    const Floats weighted = Load(x.weights + i) * level;
    product.Add(i, weighted * value);
    square.Add(i, weighted * level);
  }
  return {product.Total(), square.Total()};
}

// The scale of a group if it could be any number.
template <int kCount>
float SearchShiftedScale(const ShiftedSearch<kCount>& search, const LevelSamples& x, float peak) {
  LevelScale best;
  auto consider = [&](float shift, float inverse_scale) {
    const LevelSums sums = SumShifted(search.levels, shift, x, inverse_scale);
    const float scale = sums.BestScale();
    if (sums.Gain(scale) > best.gain) best = {scale, sums.Gain(scale)};
  };
  for (const float shift : {0.0f, search.shift}) {
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
template <int kCount>
GroupChoice ChooseScale(const ShiftedSearch<kCount>& search, const GroupScales& grid,
                        const LevelSamples& x, float unit, float ideal) {
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
    for (const bool shifted : {false, true}) {
      const LevelSums sums =
          SumShifted(search.levels, shifted ? search.shift : 0.0f, x, InverseOrZero(stored));
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
