// The nearest points of a grid to the vectors of a block, of which a lane is one. Included inside a
// namespace, and a target region where there is one, after quant/level_search.inl.
//
// With the scale t, storing values x as codes c changes their squared error by
//   sum_j w_j (x_j - t c_j)^2 - sum_j w_j x_j^2 = t (t * square - twice),
//   square = sum_j w_j c_j^2,  twice = 2 sum_j w_j x_j c_j,
// and t * square - twice is the sum of that of the lower half of the coordinates and that of the
// upper half. A half has only 81 or 64 patterns. The lower ones lie in memory, for each lane; for
// each upper pattern the least of its points' lower ones is found by as many minima as it has
// points. What a half adds to its least is counted in 255 or 511 steps, in words of 16 bits
// whose last hold the lower pattern, so the point is the best one but for such steps.

enum class GridRule {
  kFreeSigns,       // every value has its sign
  kEvenSigns,       // 8 coordinates with an even number of minus signs
  kEvenSignPairs,   // 4 coordinates; two vectors together have an even number of minus signs
  kShiftPerGroup,   // no signs; all codes of a group have +1 or -1 added
  kShiftPerVector,  // the same for each vector
};

constexpr bool IsShift(GridRule rule) {
  return rule == GridRule::kShiftPerGroup || rule == GridRule::kShiftPerVector;
}
constexpr bool IsEven(GridRule rule) {
  return rule == GridRule::kEvenSigns || rule == GridRule::kEvenSignPairs;
}

// The sums of some vectors.
struct GridSums {
  float square = 0;
  float twice = 0;

  float Change(float scale) const { return scale * (scale * square - twice); }
  float BestScale() const { return square > 0 ? 0.5f * twice / square : 0; }
};

// What kVectors vectors are stored as. The variant of a vector is not 0 where its shift is -1, or
// where one of its signs is changed to make their number even.
template <int kVectors>
struct GridPoints {
  alignas(64) float squares[kVectors];
  alignas(64) float twices[kVectors];
  alignas(64) int32_t uppers[kVectors];  // patterns
  alignas(64) int32_t lowers[kVectors];
  alignas(64) int32_t variants[kVectors];

  GridSums Sum(int begin, int count) const {
    GridSums sums;
    for (int v = begin; v < begin + count; ++v) {
      sums.square += squares[v];
      sums.twice += twices[v];
    }
    return sums;
  }
  void Copy(const GridPoints& from, int begin, int count) {
    std::copy_n(from.squares + begin, count, squares + begin);
    std::copy_n(from.twices + begin, count, twices + begin);
    std::copy_n(from.uppers + begin, count, uppers + begin);
    std::copy_n(from.lowers + begin, count, lowers + begin);
    std::copy_n(from.variants + begin, count, variants + begin);
  }
};

inline Ints LoadInts(const int32_t* source) {
  Ints v;
  std::memcpy(&v, source, sizeof(v));
  return v;
}
inline void StoreInts(int32_t* target, Ints v) { std::memcpy(target, &v, sizeof(v)); }
inline Floats OrZero(Ints condition, Floats v) {
  return reinterpret_cast<Floats>(condition & reinterpret_cast<Ints>(v));
}

using WordLanes [[gnu::vector_size(kVectorBytes)]] = uint16_t;
constexpr int kWords = kVectorBytes / 2;

inline WordLanes LesserWords(WordLanes a, WordLanes b) { return a < b ? a : b; }

template <size_t... kWord>
WordLanes ConcatWords(Ints a, Ints b, std::index_sequence<kWord...> /*words*/) {
  using Half [[gnu::vector_size(kVectorBytes / 2)]] = uint16_t;
  const Half lower = __builtin_convertvector(a, Half);
  const Half upper = __builtin_convertvector(b, Half);
  return __builtin_shufflevector(lower, upper, kWord...);
}
// The lanes of one and of the other.
inline WordLanes ToWords(const Ints (&two)[2]) {
  return ConcatWords(two[0], two[1], std::make_index_sequence<kWords>());
}
inline void StoreWords(int32_t* target, WordLanes words) {
  uint16_t lanes[kWords];
  std::memcpy(lanes, &words, sizeof(words));
  for (int lane = 0; lane < kWords; ++lane) target[lane] = lanes[lane];
}

// kBase: how many numbers a coordinate can be. Formats without shifts.
template <GridRule kRule, class Grid, int kBase>
class GridSearch {
 public:
  static constexpr int kDims = Grid::kDims;
  static constexpr int kVectors = 256 / kDims;
  using Points = GridPoints<kVectors>;

  // levels: what a coordinate can be, [kBase].
  GridSearch(const Grid& grid, const float* levels, const UnitBlock& block) : grid_(grid) {
    std::copy_n(levels, kBase, levels_);
    for (int v = 0; v < kVectors; ++v) {
      uint32_t minus = 0;
      for (int j = 0; j < kDims; ++j) {
        const float value = block.values[v * kDims + j];
        minus ^= std::bit_cast<uint32_t>(value) >> 31;
        products_[j][v] = std::fabs(2 * block.weighted[v * kDims + j]);
        weights_[j][v] = block.weights[v * kDims + j];
      }
      odd_[v] = minus != 0 ? -1 : 0;
    }
  }

  // The points that change the squared error least, with a scale > 0 for each vector.
  [[gnu::noinline]] void Nearest(const float (&scales)[kVectors], Points& points) const {
    for (int v = 0; v < kVectors; v += kWords) FindPoints(v, scales + v, points);
  }

 private:
  // Halves of halves: two coordinates of eight, one of four.
  static constexpr int kPartDims = kDims / 4;
  static constexpr int kPatterns = kPartDims == 2 ? kBase * kBase : kBase;
  static constexpr int kPatternBits = Grid::kHalves <= 64 ? 6 : 7;
  static constexpr uint16_t kPatternMask = (1 << kPatternBits) - 1;
  static_assert(kPatterns * kPatterns == Grid::kHalves && Grid::kHalves <= kPatternMask + 1);
  // The steps that matter: greater numbers are cut off at this, for each half.
  static constexpr int kStepsMax = (1 << (15 - kPatternBits)) - 1;
  // The cheapest changed sign takes no more of them.
  static constexpr float kFlipSteps =
      (kRule == GridRule::kEvenSignPairs ? 0.75f : 0.25f) * kStepsMax;
  // So much of the squares of the distance between two levels are these steps, and so much where a
  // sign may change.
  static constexpr float kReach = kDims == 4 ? 2.0f : kRule == GridRule::kEvenSigns ? 0.7f : 0.4f;
  static constexpr float kReachOfFlips = !IsEven(kRule) ? kReach : kDims == 4 ? 6.5f : 0.7f;

  // For the patterns of a part: t * square - twice, and what changing its cheapest sign adds.
  struct Part {
    WordLanes changes[kPatterns];
    WordLanes flips[IsEven(kRule) ? kPatterns : 1];
  };
  // In lane after lane; the lower pattern lies in the last bits of `change`.
  struct Best {
    WordLanes change;
    WordLanes upper;

    void Keep(WordLanes candidate, int h) {
      upper = candidate < change ? WordLanes{} + static_cast<uint16_t>(h) : upper;
      change = LesserWords(candidate, change);
    }
  };

  // Numbers of one vector of floats for the patterns of a part.
  struct PartLanes {
    Floats changes[kPatterns];
    Floats flips[kPatterns];
  };

  PartLanes OfPart(int first, int v, Floats scale, Floats unit, Ints flips_count,
                   Floats flips_free) const {
    Floats changes[kPartDims][kBase];
    Floats flips[kPartDims][kBase];
    for (int j = 0; j < kPartDims; ++j) {
      const Floats product = Load(products_[first + j] + v);
      const Floats curvature = scale * Load(weights_[first + j] + v);
      for (int d = 0; d < kBase; ++d) {
        changes[j][d] = (curvature * levels_[d] - product) * levels_[d];
        if constexpr (IsEven(kRule)) {
          const Floats flip = product * (2 * levels_[d]) * unit - flips_free;
          flips[j][d] = OrZero(flips_count, Max(flip, Floats{}));
        }
      }
      Floats least = changes[j][0];
      for (int d = 1; d < kBase; ++d) least = Min(changes[j][d], least);
      for (int d = 0; d < kBase; ++d) changes[j][d] = (changes[j][d] - least) * unit;
    }
    PartLanes part;
    for (int p = 0; p < kPatterns; ++p) {
      if constexpr (kPartDims == 1) {
        part.changes[p] = changes[0][p];
        if constexpr (IsEven(kRule)) part.flips[p] = flips[0][p];
      } else {
        part.changes[p] = changes[0][p % kBase] + changes[1][p / kBase];
        if constexpr (IsEven(kRule)) part.flips[p] = Min(flips[0][p % kBase], flips[1][p / kBase]);
      }
    }
    return part;
  }

  static Ints ToSteps(Floats number) {
    return __builtin_convertvector(Min(number + 0.5f, Splat(kStepsMax)), Ints);
  }
  static WordLanes CutOff(WordLanes number) {
    return LesserWords(number, WordLanes{} + static_cast<uint16_t>(kStepsMax));
  }

  // What a step is of the change.
  Floats StepsOf(int v, Floats scale, Ints flips) const {
    const float apart = levels_[1] - levels_[0];
    Floats total{};
    for (int j = 0; j < kDims; ++j) total += Load(weights_[j] + v);
    const Floats size = Max(total * scale, Splat(std::numeric_limits<float>::min()));
    const Floats reach = flips ? Splat(kReachOfFlips) : Splat(kReach);
    return (kStepsMax / (apart * apart)) / (reach * size);
  }

  // What the cheapest sign costs about, but for kFlipSteps.
  Floats FreeFlips(int v, Floats scale, Floats unit) const {
    Floats least = Splat(std::numeric_limits<float>::max());
    for (int j = 0; j < kDims; ++j) {
      const Floats product = Load(products_[j] + v);
      const Floats curvature = Max(scale * Load(weights_[j] + v), Splat(0x1p-126f));
      least = Min(product * Max(product / curvature, Splat(2 * levels_[0])), least);
    }
    return Max(least * unit - kFlipSteps, Floats{});
  }

  void FillParts(int v, const float* scales, Part (&parts)[4]) const {
    PartLanes lanes[2][4];
    for (int half = 0; half < 2; ++half) {
      const int at = v + half * kWidth;
      const Floats scale = Load(scales + half * kWidth);
      const Ints odd = LoadInts(odd_ + at);
      const Ints flips = kRule == GridRule::kEvenSignPairs ? odd ^ Swapped<kWidth>(odd) : odd;
      const Floats unit = StepsOf(at, scale, flips);
      const Floats flips_free = IsEven(kRule) ? FreeFlips(at, scale, unit) : Floats{};
      for (int part = 0; part < 4; ++part) {
        lanes[half][part] = OfPart(part * kPartDims, at, scale, unit, flips, flips_free);
      }
    }
    for (int part = 0; part < 4; ++part) {
      for (int p = 0; p < kPatterns; ++p) {
        parts[part].changes[p] =
            ToWords({ToSteps(lanes[0][part].changes[p]), ToSteps(lanes[1][part].changes[p])});
        if constexpr (IsEven(kRule)) {
          parts[part].flips[p] =
              ToWords({ToSteps(lanes[0][part].flips[p]), ToSteps(lanes[1][part].flips[p])});
        }
      }
    }
  }

  // Of kWords vectors from v on.
  void FindPoints(int v, const float* scales, Points& points) const {
    Part parts[4];
    FillParts(v, scales, parts);
    constexpr int kForms = IsEven(kRule) ? 2 : 1;
    alignas(64) WordLanes lowers[kForms][Grid::kHalves];
    for (int p = 0, at = 0; p < kPatterns; ++p) {
      for (int q = 0; q < kPatterns; ++q, ++at) {
        const WordLanes change = parts[0].changes[q] + parts[1].changes[p];
        lowers[0][at] = Marked(change, at);
        if constexpr (IsEven(kRule)) {
          const WordLanes flip = LesserWords(parts[0].flips[q], parts[1].flips[p]);
          lowers[1][at] = Marked(change + flip, at);
        }
      }
    }
    const Best none = {~WordLanes{}, WordLanes{}};
    Best bests[2] = {none, none};
    for (const auto& run : std::span(grid_.runs, static_cast<size_t>(grid_.run_count))) {
      const int h = run.upper;
      const int q = h % kPatterns;
      const int p = h / kPatterns;
      const WordLanes change = parts[2].changes[q] + parts[3].changes[p];
      const WordLanes upper = CutOff(change) << kPatternBits;
      const WordLanes lower = LeastOf(lowers[0], run);
      if constexpr (kRule != GridRule::kEvenSigns) bests[0].Keep(upper + lower, h);
      if constexpr (IsEven(kRule)) {
        const WordLanes flip = LesserWords(parts[2].flips[q], parts[3].flips[p]);
        const WordLanes in_upper = (CutOff(change + flip) << kPatternBits) + lower;
        const WordLanes in_lower = upper + LeastOf(lowers[1], run);
        bests[kRule == GridRule::kEvenSignPairs].Keep(LesserWords(in_lower, in_upper), h);
      }
    }
    if constexpr (kRule == GridRule::kEvenSignPairs) {
      Points changed;
      std::fill_n(changed.variants + v, kWords, -1);
      std::fill_n(points.variants + v, kWords, 0);
      StoreBest(v, bests[1], changed);
      StoreBest(v, bests[0], points);
      ChooseChanged(v, scales, changed, points);
    } else {
      std::copy_n(odd_ + v, kWords, points.variants + v);
      StoreBest(v, bests[0], points);
    }
  }

  // Of the variants that the points have.
  void StoreBest(int v, const Best& best, Points& points) const {
    StoreWords(points.uppers + v, best.upper);
    StoreWords(points.lowers + v, best.change & kPatternMask);
    for (int at = v; at < v + kWords; at += kWidth) SumPoints(at, points);
  }

  // Of two vectors that together have an odd number of minus signs, the one changes for which this
  // costs less.
  void ChooseChanged(int v, const float* scales, const Points& changed, Points& points) const {
    for (int at = v; at < v + kWords; at += 2) {
      if (odd_[at] == odd_[at + 1]) continue;
      const float scale = scales[at - v];
      float more[2];
      for (int k = 0; k < 2; ++k) {
        more[k] = changed.Sum(at + k, 1).Change(scale) - points.Sum(at + k, 1).Change(scale);
      }
      points.Copy(changed, at + (more[1] < more[0] ? 1 : 0), 1);
    }
  }

  // With the lower pattern in the last bits.
  static WordLanes Marked(WordLanes change, int pattern) {
    return CutOff(change) << kPatternBits | static_cast<uint16_t>(pattern);
  }

  static WordLanes LoadRun(const WordLanes* lowers, size_t run) {
    WordLanes v;
    std::memcpy(&v, reinterpret_cast<const char*>(lowers) + run * (kVectorBytes / 16), sizeof(v));
    return v;
  }

  WordLanes LeastOf(const WordLanes* lowers, const typename Grid::Run& run) const {
    const uint16_t* at = grid_.of_runs + run.begin;
    const uint16_t* end = grid_.of_runs + run.end;
    WordLanes even = LoadRun(lowers, at[0]);
    WordLanes odd = LoadRun(lowers, at[1]);
    for (at += 2; at < end; at += 2) {
      even = LesserWords(even, LoadRun(lowers, at[0]));
      odd = LesserWords(odd, LoadRun(lowers, at[1]));
    }
    return LesserWords(even, odd);
  }

  template <class Vector, size_t... kLane>
  static Vector SwappedLanes(Vector v, std::index_sequence<kLane...> /*lanes*/) {
    return __builtin_shufflevector(v, v, (kLane ^ 1)...);
  }
  template <int kCount, class Vector>
  static Vector Swapped(Vector v) {
    return SwappedLanes(v, std::make_index_sequence<kCount>());
  }

  // The sums of the points whose patterns are known.
  void SumPoints(int v, Points& points) const {
    Floats square{};
    Floats twice{};
    Floats smallest = Splat(std::numeric_limits<float>::infinity());
    for (int half = 0; half < 2; ++half) {
      Ints left = LoadInts((half == 0 ? points.lowers : points.uppers) + v);
      for (int j = 0; j < Grid::kHalfDims; ++j) {
        const Ints rest = kBase == 8 ? left >> 3 : left * 171 >> 9;
        const Floats code = LookUp<Floats>(levels_, left - rest * kBase);
        left = rest;
        const int at = half * Grid::kHalfDims + j;
        const Floats term = Load(products_[at] + v) * code;
        square += Load(weights_[at] + v) * code * code;
        twice += term;
        smallest = Min(term, smallest);
      }
    }
    if constexpr (IsEven(kRule)) {
      twice -= OrZero(LoadInts(points.variants + v), smallest + smallest);
    }
    Store(points.squares + v, square);
    Store(points.twices + v, twice);
  }

  const Grid& grid_;
  alignas(64) float levels_[8] = {};
  alignas(64) float products_[kDims][kVectors];  // twice weight times magnitude
  alignas(64) float weights_[kDims][kVectors];
  alignas(64) int32_t odd_[kVectors];  // -1 where the number of minus signs is odd
};
