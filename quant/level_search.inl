// The search of quant/level_fit.h for the scale of some values that share one. Included inside a
// namespace, and a target region where there is one, after quant/lanes.inl.
//
// For a given scale every value takes its nearest level; for given levels the best scale is a
// least-squares problem. Starts are given as multiples of a magnitude of the values.

// Ascending levels; the nearest to a number is the first one plus the steps whose borders it
// exceeds.
template <int kCount>
struct Levels {
  float first;
  float borders[kCount - 1];
  float steps[kCount - 1];

  Floats Nearest(Floats x) const {
    Floats level = Splat(first);
#pragma GCC unroll 16
    for (int k = 0; k < kCount - 1; ++k) {
      level += x > Splat(borders[k]) ? Splat(steps[k]) : Floats{};
    }
    return level;
  }
};

template <int kCount>
constexpr Levels<kCount> MakeLevels(const int8_t (&ascending)[kCount]) {
  Levels<kCount> levels{};
  levels.first = ascending[0];
  for (int k = 0; k < kCount - 1; ++k) {
    levels.steps[k] = static_cast<float>(ascending[k + 1] - ascending[k]);
    levels.borders[k] = 0.5f * static_cast<float>(ascending[k] + ascending[k + 1]);
  }
  return levels;
}

// The part of a block that shares a scale.
struct LevelSamples {
  const float* values;
  const float* weights;
  int count;  // a multiple of 16
};

inline float PeakOf(const LevelSamples& x) {
  float peak = 0;
  for (int i = 0; i < x.count; ++i) {
    if (std::fabs(x.values[i]) > std::fabs(peak)) peak = x.values[i];
  }
  return peak;
}

inline float RootMeanSquare(const LevelSamples& x) {
  LaneSum squares;
  LaneSum weights;
  for (int i = 0; i < x.count; i += kWidth) {
    const Floats value = Load(x.values + i);
    const Floats weight = Load(x.weights + i);
    squares.Add(i, weight * value * value);
    weights.Add(i, weight);
  }
  return std::sqrt(squares.Total() / weights.Total());
}

// sum w x l and sum w l l of the nearest levels l.
struct LevelSums {
  float product = 0;
  float square = 0;

  float BestScale() const { return square > 0 ? product / square : 0; }
  // The squared error that `scale` removes, compared with all zeros.
  float Gain(float scale) const { return scale * (2 * product - scale * square); }
};

template <int kCount>
LevelSums SumLevels(const Levels<kCount>& levels, const LevelSamples& x, float inverse_scale) {
  LaneSum product;
  LaneSum square;
  const Floats inverse = Splat(inverse_scale);
  for (int i = 0; i < x.count; i += kWidth) {
    const Floats value = Load(x.values + i);
    const Floats level = levels.Nearest(value * inverse);
    const Floats weighted = Load(x.weights + i) * level;
    product.Add(i, weighted * value);
    square.Add(i, weighted * level);
  }
  return {product.Total(), square.Total()};
}

struct LevelScale {
  float scale = 0;
  float gain = 0;
};

// The best of the scales magnitude / target for the given targets, after least squares and another
// look at the levels that the better scale gives.
template <int kCount, size_t kTargets>
LevelScale SearchLevelScale(const Levels<kCount>& levels, const LevelSamples& x, float magnitude,
                            const float (&targets)[kTargets]) {
  LevelScale best;
  auto consider = [&](float inverse_scale) {
    const LevelSums sums = SumLevels(levels, x, inverse_scale);
    const float scale = sums.BestScale();
    if (sums.Gain(scale) > best.gain) best = {scale, sums.Gain(scale)};
  };
  for (const float target : targets) consider(target / magnitude);
  if (best.scale != 0) consider(1 / best.scale);
  return best;
}
