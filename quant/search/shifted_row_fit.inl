// The fits of quant/search/shifted_fit.h for rows with a factor of their own, included after
// quant/search/shifted_fit.inl: every group looks for its best scale alone, then some factors are
// tried for the whole row, and the one that fits the best choice's levels. Sums over a row are made
// in double precision, because its blocks may differ in size by any power of two.

constexpr GroupScales kScalesOfIq2Ks = {32, -16, 15, 1};
constexpr GroupScales kScalesOfIq4Ks = {32, -127, 127, 2};

// A block of a row: its values, and the factors that its values and weights were divided by.
struct RowBlock {
  UnitBlock unit;
  double heaviest = 1;
  double size;  // what values were divided by, a power of two
  GroupScale ideals[16] = {};

  RowBlock(const float* values, const float* importance) : unit(values, importance, 256) {
    size = std::ldexp(1.0, unit.exponent);
    if (unit.heaviest > 0) heaviest = double{unit.heaviest};
  }

  LevelSamples Group(int g, int count) const { return unit.Part(g * count, count); }
  // A factor of the row in the block's unit.
  float InUnit(float d) const { return static_cast<float>(double{d} / size); }
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
    for (int g = 0; g < grid.groups(); g += 2) {
      GroupChoice choices[2 * kUnits];
      const TwoGroups groups = {block.Group(g, grid.group_values),
                                block.Group(g + 1, grid.group_values)};
      ChooseOfPair<Search::kRowUnits>(search, grid, groups, units, block.ideals + g, choices);
      for (int i = 0; i < 2 * kUnits; ++i) {
        const int u = i % kUnits;
        const GroupChoice& choice = choices[i];
        blocks[u][b].scales[g + i / kUnits] = static_cast<int16_t>(choice.scale);
        blocks[u][b].shifted[g + i / kUnits] = choice.shifted;
        const double multiple = choice.scale;
        gain[u] += double{choice.gain};
        product[u] += multiple * double{choice.sums.product};
        square[u] += multiple * multiple * double{choice.sums.square};
      }
    }
    for (int u = 0; u < kUnits; ++u) {
      gains[u] += block.heaviest * block.size * block.size * gain[u];
      products[u] += block.heaviest * block.size * product[u];
      squares[u] += block.heaviest * square[u];
    }
  }
};

// Fills the blocks of a row with the scales that their groups would have if scales could be any
// numbers; returns the largest scale.
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
      const double scale = block.size * double{block.ideals[g].scale};
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

  constexpr int kUnits = Search::kRowUnits;
  float factors[kUnits];
  for (int u = 0; u < kUnits; ++u) {
    const float part = search.parts[u * (kUnitsTogether / kUnits)];
    factors[u] = StoredFactor<Head>(largest / double{part} / grid.min);
  }
  RowUnits<kUnits> first(search, grid, blocks, best.blocks, factors);
  int at = 0;
  for (int u = 1; u < kUnits; ++u) at = first.gains[u] > first.gains[at] ? u : at;
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

// Makes the number of bits of four codes even: where it is odd, one code gives way to another of
// the other parity, the one that costs least.
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
