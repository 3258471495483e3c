// The fits of quant/level_fit.h, included after quant/level_search.inl.

constexpr Levels<16> kIq4 = MakeLevels(kIq4Levels);
constexpr int8_t kE2M1Ascending[] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
constexpr Levels<15> kE2M1 = MakeLevels(kE2M1Ascending);
constexpr int8_t kTernaryAscending[] = {-1, 0, 1};
constexpr Levels<3> kTernary = MakeLevels(kTernaryAscending);
constexpr int8_t kTernaryUpTo2Ascending[] = {-1, 0, 1, 2};
constexpr Levels<4> kTernaryUpTo2 = MakeLevels(kTernaryUpTo2Ascending);

// The value of largest magnitude is placed around the far end of the levels, -127, and around the
// other end, where it may be cut off while the far end serves the other sign.
constexpr float kIq4Targets[] = {-152, -147, -142, -137, -132, -127, -122, -117, -112,
                                 -107, -102, -97,  93,   98,   103,  108,  113,  118,
                                 123,  128,  133,  138,  143,  148,  153};
// Multiples of the root mean square that level 1 takes.
constexpr float kTernaryTargets[] = {1.6f, 1.3f, 1.15f, 1.0f, 0.9f, 0.8f, 0.7f, 0.6f, 0.5f, 0.4f};

inline float InverseOrZero(float scale) { return std::fabs(scale) >= 0x1p-126f ? 1 / scale : 0; }

// The number of the nearest level, in ascending order.
template <int kCount>
uint8_t NearestLevel(const Levels<kCount>& levels, float x) {
  uint8_t number = 0;
  for (const float border : levels.borders) number = static_cast<uint8_t>(number + (x > border));
  return number;
}

template <int kCount>
void StoreLevels(const Levels<kCount>& levels, const LevelSamples& x, float scale,
                 uint8_t* numbers) {
  const float inverse = InverseOrZero(scale);
  for (int i = 0; i < x.count; ++i) numbers[i] = NearestLevel(levels, x.values[i] * inverse);
}

// The gain of a scale as stored.
template <int kCount>
float GainOf(const Levels<kCount>& levels, const LevelSamples& x, float scale) {
  return SumLevels(levels, x, InverseOrZero(scale)).Gain(scale);
}

// ---- One half-precision scale ----------------------------------------------------------------

// Stores the best of the scales, each rounded to a half.
template <int kCount, size_t kScales>
LevelFit StoreBest(const Levels<kCount>& levels, const UnitValues& block, const LevelSamples& x,
                   const float (&scales)[kScales]) {
  LevelFit fit{};
  float best_gain = -std::numeric_limits<float>::infinity();
  for (const float scale : scales) {
    if (scale == 0) continue;
    const PackedHalf d = block.StoreScale(scale);
    const float gain = GainOf(levels, x, block.Load(d));
    if (gain <= best_gain) continue;
    best_gain = gain;
    fit.d = d;
  }
  StoreLevels(levels, x, block.Load(fit.d), fit.codes);
  return fit;
}

inline LevelFit SearchIq4Nl(const float* values, const float* importance) {
  const UnitValues block(values, importance, 32);
  if (block.all_zero) return {};
  const LevelSamples x{block.values, block.weights, 32};
  const float peak = PeakOf(x);
  const float searched = SearchLevelScale(kIq4, x, peak, kIq4Targets).scale;
  return StoreBest(kIq4, block, x, {searched, peak / kIq4Levels[0]});
}

template <int kCount, int kValues = 256>
LevelFit SearchTernaryLevels(const Levels<kCount>& levels, const float* values,
                             const float* importance) {
  const UnitValues block(values, importance, kValues);
  if (block.all_zero) {
    LevelFit fit{};
    std::fill_n(fit.codes, kValues, uint8_t{1});
    return fit;
  }
  const LevelSamples x{block.values, block.weights, kValues};
  const float size = RootMeanSquare(x);
  const float peak = std::fabs(PeakOf(x));
  const float plus = SearchLevelScale(levels, x, size, kTernaryTargets).scale;
  if constexpr (kCount == 3) return StoreBest(levels, block, x, {plus, peak});
  const float minus = SearchLevelScale(levels, x, -size, kTernaryTargets).scale;
  return StoreBest(levels, block, x, {plus, minus, peak, -peak, peak / 2, -peak / 2});
}

inline LevelFit SearchTernary(const float* values, const float* importance) {
  return SearchTernaryLevels(kTernary, values, importance);
}
inline LevelFit SearchTernaryUpTo2(const float* values, const float* importance) {
  return SearchTernaryLevels(kTernaryUpTo2, values, importance);
}
inline LevelFit SearchTernaryUpTo2Of64(const float* values, const float* importance) {
  return SearchTernaryLevels<4, 64>(kTernaryUpTo2, values, importance);
}

// With signs for codes the best scale is the weighted mean of the magnitudes.
inline LevelFit SearchSigns(const float* values, const float* importance) {
  LevelFit fit{};
  const UnitValues block(values, importance, 128);
  if (block.all_zero) return fit;
  LaneSum magnitudes;
  LaneSum weights;
  for (int i = 0; i < 128; i += kWidth) {
    const Floats value = Load(block.values + i);
    const Floats weight = Load(block.weights + i);
    magnitudes.Add(i, weight * (value < Floats{} ? -value : value));
    weights.Add(i, weight);
  }
  fit.d = block.StoreScale(magnitudes.Total() / weights.Total());
  for (int i = 0; i < 128; ++i) fit.codes[i] = static_cast<uint8_t>(block.values[i] >= 0);
  return fit;
}

// ---- IQ4_XS ----------------------------------------------------------------------------------

// The scale of group g as a multiple of `unit`: the nearest to the ideal and its neighbours, by the
// gain that they leave. Returns that gain.
inline float ChooseIq4Scale(const LevelSamples& x, float unit, float ideal, int8_t& scale) {
  const float nearest = std::clamp(ideal * InverseOrZero(unit), -32.0f, 31.0f);
  const int middle = static_cast<int>(std::lround(nearest));
  float best_gain = -std::numeric_limits<float>::infinity();
  for (int s = std::max(middle - 1, -32); s <= std::min(middle + 1, 31); ++s) {
    const float gain = GainOf(kIq4, x, unit * static_cast<float>(s));
    if (gain <= best_gain) continue;
    best_gain = gain;
    scale = static_cast<int8_t>(s);
  }
  return best_gain;
}

inline Iq4XsFit SearchIq4Xs(const float* values, const float* importance) {
  constexpr int kGroups = 8;
  Iq4XsFit best{};
  const UnitValues block(values, importance, 256);
  if (block.all_zero) return best;
  auto group = [&](int g) {
    return LevelSamples{block.values + 32 * g, block.weights + 32 * g, 32};
  };
  float ideals[kGroups] = {};
  float largest = 0;
  for (int g = 0; g < kGroups; ++g) {
    const float peak = PeakOf(group(g));
    if (std::fabs(peak) < 0x1p-60f) continue;
    ideals[g] = SearchLevelScale(kIq4, group(g), peak, kIq4Targets).scale;
    if (std::fabs(ideals[g]) > std::fabs(largest)) largest = ideals[g];
  }

  // The group of largest scale takes one of the far multiples of d.
  float best_gain = -std::numeric_limits<float>::infinity();
  auto consider = [&](float unit, Iq4XsFit& fit) {
    fit.d = block.StoreScale(unit);
    unit = block.Load(fit.d);
    float gain = 0;
    float product = 0;
    float square = 0;
    for (int g = 0; g < kGroups; ++g) {
      gain += ChooseIq4Scale(group(g), unit, ideals[g], fit.scales[g]);
      const float multiple = static_cast<float>(fit.scales[g]);
      const LevelSums sums = SumLevels(kIq4, group(g), InverseOrZero(unit * multiple));
      product += multiple * sums.product;
      square += multiple * multiple * sums.square;
    }
    if (gain > best_gain) {
      best_gain = gain;
      best = fit;
    }
    return square > 0 ? product / square : 0;
  };
  for (const float multiple : {-32.0f, -30.0f, -28.0f}) {
    Iq4XsFit fit{};
    const float refitted = consider(largest / multiple, fit);
    if (refitted != 0) consider(refitted, fit);
  }
  const float unit = block.Load(best.d);
  for (int g = 0; g < kGroups; ++g) {
    StoreLevels(kIq4, group(g), unit * static_cast<float>(best.scales[g]), best.codes + 32 * g);
  }
  return best;
}

// ---- E2M1 ------------------------------------------------------------------------------------

// From the number of a level in ascending order to the bits of E2M1.
inline void ToE2M1(int count, uint8_t* codes) {
  for (int i = 0; i < count; ++i) {
    codes[i] = static_cast<uint8_t>(codes[i] >= 7 ? codes[i] - 7 : 15 - codes[i]);
  }
}

inline Mxfp4Fit SearchMxfp4(const float* values, const float* importance) {
  Mxfp4Fit fit{};
  const UnitValues block(values, importance, 32);
  if (block.all_zero) return fit;
  const LevelSamples x{block.values, block.weights, 32};
  // The peak, in [1, 2) of the unit range, becomes 2 .. 128 in doubled levels; a larger stored
  // exponent than 252 would give infinities.
  constexpr int kExponentMax = 252;
  float best_gain = -std::numeric_limits<float>::infinity();
  int best = 0;
  for (int e = -6; e <= -1; ++e) {
    const int stored = std::min(block.exponent + e + 128, kExponentMax);
    const float gain = GainOf(kE2M1, x, std::ldexp(1.0f, stored - 128 - block.exponent));
    if (gain <= best_gain) continue;
    best_gain = gain;
    best = stored;
  }
  fit.scale = static_cast<uint8_t>(best);
  StoreLevels(kE2M1, x, std::ldexp(1.0f, best - 128 - block.exponent), fit.codes);
  ToE2M1(32, fit.codes);
  return fit;
}

inline Nvfp4Fit SearchNvfp4(const float* values, const float* importance) {
  // What the peak becomes with the smallest and the largest scale considered, in doubled levels.
  constexpr float kTargetMax = 24;
  constexpr float kTargetMin = 4;
  constexpr int kScaleMax = 0x7e;
  Nvfp4Fit fit{};
  const UnitValues block(values, importance, 64);
  if (!block.all_zero) {
    for (int g = 0; g < 4; ++g) {
      const LevelSamples x{block.values + 16 * g, block.weights + 16 * g, 16};
      const float peak = std::ldexp(std::fabs(PeakOf(x)), block.exponent);
      int first = 0;
      while (first < kScaleMax && HalfOfUe4M3(static_cast<uint8_t>(first)) * kTargetMax < peak) {
        ++first;
      }
      float best_gain = 0;
      for (int s = first; s <= kScaleMax; ++s) {
        const float scale = HalfOfUe4M3(static_cast<uint8_t>(s));
        if (s > first && scale * kTargetMin > peak) break;
        const float gain = GainOf(kE2M1, x, std::ldexp(scale, -block.exponent));
        if (gain <= best_gain) continue;
        best_gain = gain;
        fit.scales[g] = static_cast<uint8_t>(s);
      }
      const float scale = HalfOfUe4M3(fit.scales[g]);
      StoreLevels(kE2M1, x, std::ldexp(scale, -block.exponent), fit.codes + 16 * g);
    }
    ToE2M1(64, fit.codes);
  }
  return fit;
}
