// The fits of quant/search/level_fit.h, included after quant/search/level_search.inl.

constexpr Levels<16> kIq4 = MakeLevels(kIq4Levels, {0.08985f, 0.000231585f, 7.84375f});
static_assert(CurveFits(kIq4));
constexpr int8_t kE2M1Ascending[] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
constexpr Levels<15> kE2M1 = MakeLevels(kE2M1Ascending, {1.14123f, 0.0487f, 7.0f});
static_assert(CurveFits(kE2M1));
constexpr int8_t kTernaryAscending[] = {-1, 0, 1};
constexpr Levels<3> kTernary = MakeLevels(kTernaryAscending);
constexpr int8_t kTernaryUpTo2Ascending[] = {-1, 0, 1, 2};
constexpr Levels<4> kTernaryUpTo2 = MakeLevels(kTernaryUpTo2Ascending);

// The value of largest magnitude is placed around the far end of the levels, -127, and around the
// other end, where it may be cut off while the far end serves the other sign.
constexpr float kIq4Targets[] = {-99,  90,  -107, 99,  -114, 108, -122, 117,
                                 -130, 127, -137, 136, -145, 145, -152, 154};
constexpr float kIq4Step = 0.012f;
// Multiples of the root mean square that level 1 takes.
constexpr float kTernaryTargets[] = {1.8f,  1.6f, 1.45f, 1.3f,  1.2f, 1.1f,  1.0f,  0.93f,
                                     0.86f, 0.8f, 0.74f, 0.68f, 0.6f, 0.52f, 0.45f, 0.4f};

inline float InverseOrZero(float scale) { return std::fabs(scale) >= 0x1p-126f ? 1 / scale : 0; }
inline Floats InverseOrZero(Floats scale) {
  return Sizes(scale) >= 0x1p-126f ? 1.0f / scale : Floats{};
}

using Bytes [[gnu::vector_size(kWidth)]] = uint8_t;
inline void StoreBytes(uint8_t* target, Ints numbers) {
  const Bytes bytes = __builtin_convertvector(numbers, Bytes);
  std::memcpy(target, &bytes, sizeof(bytes));
}

// The numbers of the nearest levels, in ascending order.
template <int kCount>
void StoreLevels(const Levels<kCount>& levels, const LevelSamples& x, float scale,
                 uint8_t* numbers) {
  const Floats inverse = Splat(InverseOrZero(scale));
  for (int i = 0; i < x.count; i += kWidth) {
    StoreBytes(numbers + i, levels.Number(Load(x.values + i) * inverse));
  }
}

// ---- One half-precision scale ----------------------------------------------------------------

// Stores the best of the scales, each rounded to a half.
template <int kCount, size_t kScales>
LevelFit StoreBest(const Levels<kCount>& levels, const UnitValues& block, const LevelSamples& x,
                   const float (&scales)[kScales]) {
  static_assert(kScales <= 16);
  LevelFit fit{};
  PackedHalf stored[16];
  alignas(64) float inverses[16] = {};
  for (size_t k = 0; k < kScales; ++k) {
    if (scales[k] == 0) continue;
    stored[k] = block.StoreScale(scales[k]);
    inverses[k] = InverseOrZero(block.Load(stored[k]));
  }
  const LanesOfSums<16> sums = SumLevels(levels, x, inverses);
  float best_gain = -std::numeric_limits<float>::infinity();
  for (size_t k = 0; k < kScales; ++k) {
    if (scales[k] == 0) continue;
    const float gain = sums.At(static_cast<int>(k)).Gain(block.Load(stored[k]));
    if (gain <= best_gain) continue;
    best_gain = gain;
    fit.d = stored[k];
  }
  StoreLevels(levels, x, block.Load(fit.d), fit.codes);
  return fit;
}

inline LevelFit SearchIq4Nl(const float* values, const float* importance) {
  const UnitBlock block(values, importance, 32);
  if (block.all_zero) return {};
  const LevelSamples x = block.Part(0, 32);
  const float peak = PeakOf(x);
  const float searched = SearchLevelScale(kIq4, x, peak, kIq4Targets, kIq4Step).scale;
  return StoreBest(kIq4, block, x, {searched, peak / kIq4Levels[0]});
}

template <int kCount, int kValues = 256>
LevelFit SearchTernaryLevels(const Levels<kCount>& levels, const float* values,
                             const float* importance) {
  const UnitBlock block(values, importance, kValues);
  if (block.all_zero) {
    LevelFit fit{};
    std::fill_n(fit.codes, kValues, uint8_t{1});
    return fit;
  }
  const LevelSamples x = block.Part(0, kValues);
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

// Where codes are signs, the best scale is the weighted mean of the magnitudes.
inline LevelFit SearchSigns(const float* values, const float* importance) {
  LevelFit fit{};
  const UnitBlock block(values, importance, 128);
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

// ---- E2M1 ------------------------------------------------------------------------------------

// From the number of a level in ascending order to the bits of E2M1.
inline void ToE2M1(int count, uint8_t* codes) {
  for (int i = 0; i < count; ++i) {
    codes[i] = static_cast<uint8_t>(codes[i] >= 7 ? codes[i] - 7 : 15 - codes[i]);
  }
}

inline Mxfp4Fit SearchMxfp4(const float* values, const float* importance) {
  Mxfp4Fit fit{};
  const UnitBlock block(values, importance, 32);
  if (block.all_zero) return fit;
  const LevelSamples x = block.Part(0, 32);
  // The peak, in [1, 2) of the unit range, becomes 2 .. 128 in doubled levels; a larger stored
  // exponent than 252 would give infinities.
  constexpr int kExponentMax = 252;
  constexpr int kExponents = 6;
  int stored[kExponents];
  alignas(64) float inverses[16] = {};
  for (int k = 0; k < kExponents; ++k) {
    stored[k] = std::min(block.exponent + k - 6 + 128, kExponentMax);
    inverses[k] = std::ldexp(1.0f, block.exponent + 128 - stored[k]);
  }
  const LanesOfSums<16> sums = SumLevels(kE2M1, x, inverses);
  float best_gain = -std::numeric_limits<float>::infinity();
  int best = 0;
  for (int k = 0; k < kExponents; ++k) {
    const float gain = sums.At(k).Gain(std::ldexp(1.0f, stored[k] - 128 - block.exponent));
    if (gain <= best_gain) continue;
    best_gain = gain;
    best = stored[k];
  }
  fit.scale = static_cast<uint8_t>(best);
  StoreLevels(kE2M1, x, std::ldexp(1.0f, best - 128 - block.exponent), fit.codes);
  ToE2M1(32, fit.codes);
  return fit;
}

inline Nvfp4Fit SearchNvfp4(const float* values, const float* importance) {
  // The magnitude of the peak, in doubled levels, with the smallest and the largest scale
  // considered.
  constexpr float kTargetMax = 24;
  constexpr float kTargetMin = 4;
  constexpr int kScaleMax = 0x7e;
  Nvfp4Fit fit{};
  const UnitBlock block(values, importance, 64);
  if (!block.all_zero) {
    for (int g = 0; g < 4; ++g) {
      const LevelSamples x = block.Part(16 * g, 16);
      const float peak = std::ldexp(std::fabs(PeakOf(x)), block.exponent);
      int first = 0;
      while (first < kScaleMax && HalfOfUe4M3(static_cast<uint8_t>(first)) * kTargetMax < peak) {
        ++first;
      }
      // Twenty-four of them reach from the one target to the other.
      constexpr int kScales = 32;
      alignas(64) float scales[kScales] = {};
      alignas(64) float inverses[kScales] = {};
      for (int k = 0; k < kScales && first + k <= kScaleMax; ++k) {
        const float scale = HalfOfUe4M3(static_cast<uint8_t>(first + k));
        if (k > 0 && scale * kTargetMin > peak) break;
        scales[k] = std::ldexp(scale, -block.exponent);
        inverses[k] = InverseOrZero(scales[k]);
      }
      const LanesOfSums<kScales> sums = SumLevels(kE2M1, x, inverses);
      float best_gain = 0;
      for (int k = 0; k < kScales; ++k) {
        const float gain = sums.At(k).Gain(scales[k]);
        if (gain <= best_gain) continue;
        best_gain = gain;
        fit.scales[g] = static_cast<uint8_t>(first + k);
      }
      const float scale = HalfOfUe4M3(fit.scales[g]);
      StoreLevels(kE2M1, x, std::ldexp(scale, -block.exponent), fit.codes + 16 * g);
    }
    ToE2M1(64, fit.codes);
  }
  return fit;
}
