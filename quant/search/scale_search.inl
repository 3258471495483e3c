// The search of quant/search/scale_search.h for kLanes blocks side by side, in this order: one
// scale, a scale and an offset, codes for given scales, superblocks. Included after
// quant/search/lane_batch.inl. The blocks of a batch have no influence on each other.

// Differences this far below a block's largest value are treated as none.
constexpr float kNegligible = 0x1p-60f;
constexpr int kGroupValuesMax = 32;

// ---- One scale, no offset ------------------------------------------------------------------

inline Floats ClampCode(Floats v, CodeRange range) {
  return Clamp(v, static_cast<float>(range.min), static_cast<float>(range.max));
}
inline Floats NearestCode(Floats v, CodeRange range) { return RoundToEven(ClampCode(v, range)); }

// The codes nearest to values * inverse_scale, as sums of w * value * code and w * code^2. The
// least-squares scale is their ratio, and removes gain = value_code^2 / code_code of the squared
// error.
struct ScaleStep {
  Floats value_code;
  Floats code_code;

  Floats Scale() const { return value_code / code_code; }
  // Takes the other step where its gain is greater; compared without a division.
  void KeepBetter(const ScaleStep& other) {
    const Ints better =
        other.value_code * other.value_code * code_code > value_code * value_code * other.code_code;
    value_code = Select(better, other.value_code, value_code);
    code_code = Select(better, other.code_code, code_code);
  }
};

template <class X>
ScaleStep TryScale(const X& x, Floats inverse_scale, CodeRange range) {
  ScaleStep step{};
  for (int i = 0; i < x.count; ++i) {
    const Floats value = x.Value(i);
    const Floats code = NearestCode(value * inverse_scale, range);
    const Floats weighted = x.Weigh(i, code);
    step.value_code += weighted * value;
    step.code_code += weighted * code;
  }
  return step;
}

// The value of largest magnitude.
template <class X>
Floats Peak(const X& x) {
  Floats high{};
  Floats low{};
  for (int i = 0; i < x.count; ++i) {
    high = Max(high, x.Value(i));
    low = Min(low, x.Value(i));
  }
  return Select(high >= -low, high, low);
}

// The end of the range that the plain convention gives to the value of largest magnitude.
constexpr int FarEnd(CodeRange range) { return -range.min >= range.max ? range.min : range.max; }

// Starts: the value of largest magnitude is placed at the far end of the range times
// 1 + k * step. Beyond 1 it is cut off, which pays where it weighs little; below 1 are starts for
// blocks whose values end at the other end of the range, with the opposite sign.
struct Starts {
  int first;
  int last;
  float step;
};

// The more codes, the less there is to gain from cutting off and the more from a fine scale.
template <class X>
constexpr Starts StartsFor(CodeRange range) {
  const int steps = range.max - range.min;
  if (X::kHasImportance) {
    if (steps < 15) return {-3, 6, 0.07f};
    if (steps < 16) return {-5, 7, 0.04f};
    return {-6, 8, 0.025f};
  }
  if (steps < 16) return {-2, 3, 0.07f};
  return {-3, 4, 0.05f};
}

template <class X>
Floats SearchScale(const X& x, CodeRange range) {
  const Starts starts = StartsFor<X>(range);
  const Floats peak = Peak(x);
  const Floats inverse = Select(Abs(peak) < kNegligible, Floats{}, 1.0f / peak);
  const float far_end = static_cast<float>(FarEnd(range));
  ScaleStep best{Floats{}, Splat(1.0f)};
  for (int k = starts.first; k <= starts.last; ++k) {
    const float target = far_end * (1.0f + starts.step * static_cast<float>(k));
    best.KeepBetter(TryScale(x, target * inverse, range));
  }
  return best.Scale();
}

// ---- A scale and an offset -----------------------------------------------------------------

// value ~ scale * code - offset
struct Line {
  Floats scale;
  Floats offset;
};

struct LineStep {
  Line line;
  Floats gain;  // the squared error that the line removes, compared with the constant `origin`

  void KeepBetter(const LineStep& other) {
    const Ints better = other.gain > gain;
    line.scale = Select(better, other.line.scale, line.scale);
    line.offset = Select(better, other.line.offset, line.offset);
    gain = Select(better, other.gain, gain);
  }
};

// Values relative to an origin among them, so that nothing cancels when their range is small.
template <class X>
struct ShiftedSamples {
  X x;  // value - origin
  Floats origin;
  Floats weight;    // sum of w
  Floats value;     // sum of w * (value - origin)
  Floats base_max;  // the line's value at code 0, from the origin, is at most this
};

// The least-squares line for the codes nearest to value * inverse_scale - low_code.
template <class X>
LineStep TryLine(const ShiftedSamples<X>& shifted, Floats inverse_scale, Floats low_code,
                 int code_max) {
  Floats codes{};
  Floats squares{};
  Floats products{};
  for (int i = 0; i < shifted.x.count; ++i) {
    const Floats value = shifted.x.Value(i);
    const Floats code = NearestCode(value * inverse_scale - low_code, {0, code_max});
    const Floats weighted = shifted.x.Weigh(i, code);
    codes += weighted;
    squares += weighted * code;
    products += weighted * value;
  }
  const Floats both = shifted.weight * squares;
  const Floats determinant = both - codes * codes;
  const Floats free_base = (squares * shifted.value - codes * products) / determinant;
  const Floats base = Min(free_base, shifted.base_max);
  const Floats rest = products - base * codes;
  const Floats scale = rest / squares;
  const Floats gain = scale * rest + base * (2.0f * shifted.value - base * shifted.weight);
  const Ints usable = (determinant > 0x1p-20f * both) & (scale > kNegligible);
  return {{scale, -(shifted.origin + base)}, Select(usable, gain, Floats{})};
}

// Starts: the codes cover the range of the values, cut by parts of a code at either end.
constexpr float kCuts[] = {-0.4f, 0, 0.4f};
constexpr float kWeightedCuts[] = {-0.5f, 0, 0.5f, 1, 1.5f};

enum class OffsetSign { kAny, kNonNegative };

// The line of the plain convention: code 0 is the least value, or 0 where offsets have a sign.
template <class X>
Line RangeLine(const X& x, int code_max, OffsetSign sign) {
  Floats low = x.Value(0);
  Floats high = low;
  for (int i = 1; i < x.count; ++i) {
    low = Min(low, x.Value(i));
    high = Max(high, x.Value(i));
  }
  if (sign == OffsetSign::kNonNegative) low = Min(low, Floats{});
  return {(high - low) * (1.0f / static_cast<float>(code_max)), -low};
}

template <class X>
Line SearchLine(const X& x, const Line& plain, int code_max, OffsetSign sign) {
  constexpr std::span<const float> cuts =
      X::kHasImportance ? std::span<const float>(kWeightedCuts) : std::span<const float>(kCuts);
  alignas(64) float values[kGroupValuesMax * kLanes];
  ShiftedSamples<X> shifted{};
  shifted.x = x;
  shifted.x.values = values;
  shifted.origin = -plain.offset;
  shifted.base_max =
      sign == OffsetSign::kAny ? Splat(std::numeric_limits<float>::infinity()) : plain.offset;
  for (int i = 0; i < x.count; ++i) {
    const Floats value = x.Value(i) - shifted.origin;
    Store(values + i * kLanes, value);
    shifted.weight += x.Weigh(i, Splat(1.0f));
    shifted.value += x.Weigh(i, value);
  }
  const Ints flat = plain.scale < kNegligible;
  const Floats inverse = Select(flat, Floats{}, 1.0f / plain.scale);
  LineStep best{plain, Floats{}};
  for (const float low : cuts) {
    for (const float high : cuts) {
      const float stretch = 1 / (1 - (low + high) / static_cast<float>(code_max));
      best.KeepBetter(TryLine(shifted, inverse * stretch, Splat(low * stretch), code_max));
    }
  }
  const Floats best_inverse = Select(flat, Floats{}, 1.0f / best.line.scale);
  const Floats low_code = (plain.offset - best.line.offset) * best_inverse;
  best.KeepBetter(TryLine(shifted, best_inverse, low_code, code_max));
  return {Select(flat, Floats{}, best.line.scale), best.line.offset};
}

// ---- Codes for given scales ----------------------------------------------------------------

// The weighted squared error of the nearest codes; inverse_scale is that of the line.
template <class X>
Floats ErrorOf(const X& x, const Line& line, Floats inverse_scale, CodeRange range) {
  Floats error{};
  for (int i = 0; i < x.count; ++i) {
    const Floats value = x.Value(i) + line.offset;
    const Floats difference = value - line.scale * NearestCode(value * inverse_scale, range);
    error += x.Weigh(i, difference) * difference;
  }
  return error;
}

// Writes the nearest codes of x into codes[lane][begin ...].
template <class X>
void StoreNearest(const X& x, const Line& line, CodeRange range, int begin, int8_t* const* codes) {
  const Floats inverse = InverseOrZero(line.scale);
  for (int i = 0; i < x.count; i += 4) {
    Floats code[4];
    for (int k = 0; k < 4; ++k) {
      code[k] = ClampCode((x.Value(i + k) + line.offset) * inverse, range) + kRounding;
    }
    StoreCodes(code[0], code[1], code[2], code[3], begin + i, codes);
  }
}

// Fills the fits of single blocks for lines in stored form.
template <class X>
void StoreBlockFits(const X& x, const Line& line, Floats d, Floats m, CodeRange range,
                    BlockFit* fits) {
  const Ints d_bits = HalfBits(d);
  const Ints m_bits = HalfBits(m);
  int8_t* codes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    codes[lane] = fits[lane].codes;
    fits[lane].d = PackedHalf::FromBits(static_cast<uint16_t>(d_bits[lane]));
    fits[lane].m = PackedHalf::FromBits(static_cast<uint16_t>(m_bits[lane]));
  }
  StoreNearest(x, line, range, 0, codes);
}

template <class Blocks>
void FitLoaded(const Blocks& blocks, const PeakShape& shape, BlockFit* fits) {
  const Floats d = blocks.ToHalfScale(blocks.peak / static_cast<float>(shape.codes.max));
  StoreBlockFits(blocks.All(), {blocks.Loaded(d), Floats{}}, d, Floats{}, shape.codes, fits);
}

template <class Blocks>
void FitLoaded(const Blocks& blocks, const ScaleShape& shape, BlockFit* fits) {
  const Floats d = blocks.ToHalfScale(SearchScale(blocks.All(), shape.codes));
  StoreBlockFits(blocks.All(), {blocks.Loaded(d), Floats{}}, d, Floats{}, shape.codes, fits);
}

template <class Blocks>
void FitLoaded(const Blocks& blocks, const LineShape& shape, BlockFit* fits) {
  const CodeRange range{0, shape.code_max};
  const auto x = blocks.All();
  const Line plain = RangeLine(x, shape.code_max, OffsetSign::kAny);
  const Line searched = SearchLine(x, plain, shape.code_max, OffsetSign::kAny);
  Floats d = blocks.ToHalfScale(plain.scale);
  Floats m = blocks.ToHalf(-plain.offset);
  Line line{blocks.Loaded(d), -blocks.Loaded(m)};
  const Floats other_d = blocks.ToHalfScale(searched.scale);
  const Floats other_m = blocks.ToHalf(-searched.offset);
  const Line other{blocks.Loaded(other_d), -blocks.Loaded(other_m)};
  const Ints better = ErrorOf(x, other, InverseOrZero(other.scale), range) <
                      ErrorOf(x, line, InverseOrZero(line.scale), range);
  d = Select(better, other_d, d);
  m = Select(better, other_m, m);
  line = {Select(better, other.scale, line.scale), Select(better, other.offset, line.offset)};
  StoreBlockFits(x, line, d, m, range, fits);
}

// ---- Superblocks ---------------------------------------------------------------------------

// The integers of a superblock's groups, and what they count: d and dmin.
struct Superblocks {
  Line unit;
  Line groups[kSuperblockGroupsMax];
  Floats error;

  Line Group(int g) const { return {unit.scale * groups[g].scale, unit.offset * groups[g].offset}; }
};

// Picks the integer scale and offset of a group, from the nearest to the ideal line and their
// neighbours, by the error that is left once the codes are rounded.
template <class X>
Line ChooseGroup(const X& x, const SuperblockShape& shape, const Line& unit, const Line& ideal,
                 Floats& error_sum) {
  const CodeRange offsets{0, shape.offset_max};
  const Floats scale = NearestCode(ideal.scale * InverseOrZero(unit.scale), shape.scales);
  const Floats offset = NearestCode(ideal.offset * InverseOrZero(unit.offset), offsets);
  const float reach = shape.offset_max > 0 ? 1.0f : 0.0f;
  Line best{};
  Floats best_error = Splat(std::numeric_limits<float>::infinity());
  for (float ds = -1; ds <= 1; ++ds) {
    const Floats s = ClampCode(scale + ds, shape.scales);
    const Floats inverse = InverseOrZero(unit.scale * s);
    for (float dm = -reach; dm <= reach; ++dm) {
      const Floats m = ClampCode(offset + dm, offsets);
      const Line line{unit.scale * s, unit.offset * m};
      const Floats error = ErrorOf(x, line, inverse, shape.codes);
      const Ints better = error < best_error;
      best = {Select(better, s, best.scale), Select(better, m, best.offset)};
      best_error = Select(better, error, best_error);
    }
  }
  error_sum += best_error;
  return best;
}

// The least-squares units for the integers of the blocks: x ~ scale * (s c) - offset * m.
template <class Blocks>
Line RefitUnits(const Blocks& blocks, const SuperblockShape& shape, const Superblocks& fit) {
  Floats ss{}, mm{}, sm{}, xs{}, xm{};
  for (int g = 0; g < kSuperblockValues / shape.group_values; ++g) {
    const auto x = blocks.All().Group(g * shape.group_values, shape.group_values);
    const Line line = fit.Group(g);
    const Floats inverse = InverseOrZero(line.scale);
    Floats weights{}, values{}, codes{}, squares{}, products{};
    for (int i = 0; i < x.count; ++i) {
      const Floats value = x.Value(i);
      const Floats code = NearestCode((value + line.offset) * inverse, shape.codes);
      const Floats weighted = x.Weigh(i, code);
      weights += x.Weigh(i, Splat(1.0f));
      values += x.Weigh(i, value);
      codes += weighted;
      squares += weighted * code;
      products += weighted * value;
    }
    const Floats s = fit.groups[g].scale;
    const Floats m = fit.groups[g].offset;
    ss += s * s * squares;
    mm += m * m * weights;
    sm += s * m * codes;
    xs += s * products;
    xm += m * values;
  }
  const Floats determinant = ss * mm - sm * sm;
  const Ints usable = determinant > 0x1p-20f * (ss * mm);
  const Floats alone = Select(ss > 0.0f, xs / ss, Floats{});
  return {Select(usable, (xs * mm - xm * sm) / determinant, alone),
          Select(usable, (xs * sm - xm * ss) / determinant, Floats{})};
}

// Rounds of: integers for the units, units for the integers.
constexpr int kUnitRounds = 2;

template <class Blocks>
Superblocks FitGroups(const Blocks& blocks, const SuperblockShape& shape) {
  const int groups = kSuperblockValues / shape.group_values;
  const auto all = blocks.All();
  Line ideals[kSuperblockGroupsMax];
  alignas(64) float scales[kSuperblockGroupsMax * kLanes];
  alignas(64) float offsets[kSuperblockGroupsMax * kLanes];
  alignas(64) float weights[kSuperblockGroupsMax * kLanes];
  for (int g = 0; g < groups; ++g) {
    const auto x = all.Group(g * shape.group_values, shape.group_values);
    if (shape.offset_max > 0) {
      const Line plain = RangeLine(x, shape.codes.max, OffsetSign::kNonNegative);
      ideals[g] = SearchLine(x, plain, shape.codes.max, OffsetSign::kNonNegative);
    } else {
      ideals[g] = {SearchScale(x, shape.codes), Floats{}};
    }
    Floats weight{};
    for (int i = 0; i < x.count; ++i) weight += x.Weigh(i, Splat(1.0f));
    Store(scales + g * kLanes, ideals[g].scale);
    Store(offsets + g * kLanes, ideals[g].offset);
    Store(weights + g * kLanes, weight);
  }

  using Multiples = Samples<Weighting::kImportance>;
  Line unit{SearchScale(Multiples{scales, weights, groups}, shape.scales), Floats{}};
  if (shape.offset_max > 0) {
    unit.offset = SearchScale(Multiples{offsets, weights, groups}, {0, shape.offset_max});
  }
  Superblocks best{};
  best.error = Splat(std::numeric_limits<float>::infinity());
  for (int round = 0; round < kUnitRounds; ++round) {
    Superblocks fit{};
    fit.unit = {blocks.StoredScale(unit.scale), blocks.StoredScale(unit.offset)};
    for (int g = 0; g < groups; ++g) {
      const auto x = all.Group(g * shape.group_values, shape.group_values);
      fit.groups[g] = ChooseGroup(x, shape, fit.unit, ideals[g], fit.error);
    }
    const Ints better = fit.error < best.error;
    for (int g = 0; g < groups; ++g) {
      best.groups[g] = {Select(better, fit.groups[g].scale, best.groups[g].scale),
                        Select(better, fit.groups[g].offset, best.groups[g].offset)};
    }
    best.unit = {Select(better, fit.unit.scale, best.unit.scale),
                 Select(better, fit.unit.offset, best.unit.offset)};
    best.error = Select(better, fit.error, best.error);
    if (round + 1 < kUnitRounds) unit = RefitUnits(blocks, shape, fit);
  }
  return best;
}

template <class Blocks>
void FitLoaded(const Blocks& blocks, const SuperblockShape& shape, SuperblockFit* fits) {
  const Superblocks best = FitGroups(blocks, shape);
  const Ints d_bits = HalfBits(best.unit.scale * blocks.inverse);
  const Ints dmin_bits = HalfBits(best.unit.offset * blocks.inverse);
  int8_t* codes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    codes[lane] = fits[lane].codes;
    fits[lane].d = PackedHalf::FromBits(static_cast<uint16_t>(d_bits[lane]));
    fits[lane].dmin = PackedHalf::FromBits(static_cast<uint16_t>(dmin_bits[lane]));
  }
  for (int g = 0; g < kSuperblockValues / shape.group_values; ++g) {
    const auto x = blocks.All().Group(g * shape.group_values, shape.group_values);
    StoreNearest(x, best.Group(g), shape.codes, g * shape.group_values, codes);
    for (int lane = 0; lane < kLanes; ++lane) {
      fits[lane].scales[g] = static_cast<int8_t>(best.groups[g].scale[lane]);
      fits[lane].offsets[g] = static_cast<int8_t>(best.groups[g].offset[lane]);
    }
  }
}

// ---- The interface -------------------------------------------------------------------------

// Fits kLanes blocks. importance: null, or kLanes pointers like values.
template <class Shape, class Fit>
void FitBlocks(const float* const* values, const float* const* importance, const Shape& shape,
               Fit* fits) {
  constexpr int kValues = sizeof(Fit::codes);
  constexpr bool kHasMagnitude = requires { shape.magnitude; };
  if constexpr (Shape::kUsesImportance) {
    if (importance != nullptr) {
      Batch<kValues, Weighting::kImportance> blocks;
      LoadBatch(values, importance, blocks);
      if constexpr (kHasMagnitude) {
        if (shape.magnitude == Magnitude::kCounts) CountMagnitudes(blocks);
      }
      FitLoaded(blocks, shape, fits);
      return;
    }
  }
  if constexpr (kHasMagnitude) {
    if (shape.magnitude != Magnitude::kIgnored) {
      Batch<kValues, Weighting::kMagnitude> blocks;
      LoadBatch(values, nullptr, blocks);
      CountMagnitudes(blocks);
      FitLoaded(blocks, shape, fits);
      return;
    }
  }
  Batch<kValues, Weighting::kEqual> blocks;
  LoadBatch(values, nullptr, blocks);
  FitLoaded(blocks, shape, fits);
}
