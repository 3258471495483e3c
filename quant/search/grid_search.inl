// The nearest points of a grid to the vectors of a block, of which a lane is one. Included inside a
// namespace, and a target region where there is one, after quant/search/level_search.inl.
//
// Storing values x as codes c with the scale t changes their squared error by
//   sum_j w_j (x_j - t c_j)^2 - sum_j w_j x_j^2 = t (t * square - twice),
//   square = sum_j w_j c_j^2,  twice = 2 sum_j w_j x_j c_j,
// and t * square - twice is the sum of that of the lower half of the coordinates and that of the
// upper half. A half has only 81 or 64 patterns. The lower ones lie in memory, for each lane; for
// each upper pattern the least of its points' lower ones is found by minima, many of which serve
// several upper patterns (quant/search/grid_minima.h). What a half adds to its least is counted in
// 254 or 510 steps, in words of 16 bits whose last hold the lower pattern, so the point is the best
// one but for such steps.

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

// The points that kVectors vectors are stored as. The variant of a vector is not 0 where its shift
// is -1, or where one of its signs is changed to make the number of minus signs even.
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

// The words of one and of the other side by side: word 2 k of one's lane k, then the other's.
inline WordLanes ToWords(const Ints (&two)[2]) {
  return reinterpret_cast<WordLanes>(two[0] | two[1] << 16);
}
inline void StoreWords(int32_t* target, WordLanes words) {
  const Ints both = reinterpret_cast<Ints>(words);
  StoreInts(target, both & 0xffff);
  StoreInts(target + kWidth, both >> 16 & 0xffff);
}

// kBase: how many numbers a coordinate can be. Formats without shifts.
template <GridRule kRule, class Grid, int kBase>
class GridSearch {
 public:
  static constexpr int kDims = Grid::kDims;
  static constexpr int kVectors = 256 / kDims;
  using Points = GridPoints<kVectors>;

  // levels: what a coordinate can be, [kBase].
  GridSearch(const Grid& grid, const float* levels, const UnitBlock& block)
      : minima_(MinimaOf(grid)) {
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
  static constexpr int kPatterns = Grid::kPatterns;
  using Minima = GridMinima<std::remove_const_t<Grid>>;
  static constexpr int kPatternBits = Grid::kHalves <= 64 ? 6 : 7;
  static constexpr uint16_t kPatternMask = (1 << kPatternBits) - 1;
  static_assert(kPatterns * kPatterns == Grid::kHalves && Grid::kHalves <= kPatternMask + 1);
  // The steps that matter: greater numbers are cut off at this for a half with a changed sign, and
  // at half of it for each part of a half.
  static constexpr int kStepsMax = (1 << (15 - kPatternBits)) - 1;
  static constexpr int kPartStepsMax = kStepsMax / 2;
  // The cheapest changed sign takes no more of them.
  static constexpr float kFlipSteps =
      (kRule == GridRule::kEvenSignPairs ? 0.75f : 0.25f) * kStepsMax;
  // kStepsMax steps reach over kReach times the weighted square of the distance between two levels,
  // and over kReachOfFlips times it where a sign may change.
  static constexpr float kReach = kDims == 4 ? 3.0f : kRule == GridRule::kEvenSigns ? 1.0f : 0.6f;
  static constexpr float kReachOfFlips = !IsEven(kRule) ? kReach : kDims == 4 ? 8.5f : 1.0f;
  static constexpr int kForms = IsEven(kRule) ? 2 : 1;  // of a half: with a changed sign

  // The steps of the patterns of a part: the steps of t * square - twice, above kPatternBits that
  // add up to the pattern of a lower half, and the steps that changing the cheapest sign adds.
  struct Part {
    WordLanes changes[kPatterns];
    WordLanes flips[IsEven(kRule) ? kPatterns : 1];
  };
  // In each lane; the lower pattern lies in the last bits of `change`.
  struct Best {
    WordLanes change;
    WordLanes upper;

    void Keep(WordLanes candidate, int pattern) {
      upper = candidate < change ? WordLanes{} + static_cast<uint16_t>(pattern) : upper;
      change = LesserWords(candidate, change);
    }
  };

  // The values that the steps of all coordinates depend on, in the lanes of a vector of floats.
  struct VectorSteps {
    Floats scale;
    Floats unit;        // steps of a change
    Ints flips;         // -1 where a sign may change
    Floats flips_free;  // that many steps do not count
  };
  // The steps of one coordinate's levels, in the lanes of a vector of floats.
  struct LevelSteps {
    Ints changes[kBase];
    Ints flips[kBase];
  };

  LevelSteps OfCoordinate(int j, int v, const VectorSteps& of) const {
    const Floats curvature = of.scale * Load(weights_[j] + v);
    const Floats product = Load(products_[j] + v);
    Floats changes[kBase];
    for (int d = 0; d < kBase; ++d) changes[d] = (curvature * levels_[d] - product) * levels_[d];
    Floats least = changes[0];
    for (int d = 1; d < kBase; ++d) least = Min(changes[d], least);
    LevelSteps steps;
    for (int d = 0; d < kBase; ++d) {
      steps.changes[d] = ToSteps((changes[d] - least) * of.unit);
      if constexpr (IsEven(kRule)) {
        const Floats flip = product * (2 * levels_[d]) * of.unit - of.flips_free;
        steps.flips[d] = ToSteps(OrZero(of.flips, Max(flip, Floats{})));
      }
    }
    return steps;
  }

  static Ints ToSteps(Floats number) {
    return __builtin_convertvector(Min(number + 0.5f, Splat(kStepsMax)), Ints);
  }
  static WordLanes AtMost(WordLanes number, int most) {
    return LesserWords(number, WordLanes{} + static_cast<uint16_t>(most));
  }

  // The number of steps that a change of 1 takes.
  Floats StepsOf(int v, Floats scale, Ints flips) const {
    const float apart = levels_[1] - levels_[0];
    Floats total{};
    for (int j = 0; j < kDims; ++j) total += Load(weights_[j] + v);
    const Floats size = Max(total * scale, Splat(0x1p-120f));
    const Floats reach = flips ? Splat(kReachOfFlips) : Splat(kReach);
    return (kStepsMax / (apart * apart)) / (reach * size);
  }

  // The steps that do not count: about what the cheapest changed sign costs, less kFlipSteps.
  Floats FreeFlips(int v, Floats scale, Floats unit) const {
    Floats least = Splat(std::numeric_limits<float>::max());
    for (int j = 0; j < kDims; ++j) {
      const Floats product = Load(products_[j] + v);
      const Floats curvature = Max(scale * Load(weights_[j] + v), Splat(0x1p-126f));
      least = Min(product * Max(product / curvature, Splat(2 * levels_[0])), least);
    }
    return Max(least * unit - kFlipSteps, Floats{});
  }

  VectorSteps OfVectors(int v, const float* scales) const {
    VectorSteps of;
    of.scale = Load(scales);
    const Ints odd = LoadInts(odd_ + v);
    of.flips = kRule == GridRule::kEvenSignPairs ? odd ^ Exchange<1>(odd) : odd;
    of.unit = StepsOf(v, of.scale, of.flips);
    of.flips_free = IsEven(kRule) ? FreeFlips(v, of.scale, of.unit) : Floats{};
    return of;
  }

  struct CoordinateWords {
    WordLanes changes[kBase];
    WordLanes flips[kBase];
  };

  void FillParts(int v, const float* scales, Part (&parts)[4]) const {
    const VectorSteps of[] = {OfVectors(v, scales), OfVectors(v + kWidth, scales + kWidth)};
    for (int part = 0; part < 4; ++part) {
      CoordinateWords words[kPartDims];
      for (int j = 0; j < kPartDims; ++j) {
        const int coordinate = part * kPartDims + j;
        const LevelSteps steps[] = {OfCoordinate(coordinate, v, of[0]),
                                    OfCoordinate(coordinate, v + kWidth, of[1])};
        for (int d = 0; d < kBase; ++d) {
          words[j].changes[d] = ToWords({steps[0].changes[d], steps[1].changes[d]});
          if constexpr (IsEven(kRule)) {
            words[j].flips[d] = ToWords({steps[0].flips[d], steps[1].flips[d]});
          }
        }
      }
      const int mark = part == 0 ? 1 : part == 1 ? kPatterns : 0;
      for (int p = 0; p < kPatterns; ++p) {
        WordLanes change = words[0].changes[p % kBase];
        if constexpr (kPartDims == 2) change += words[1].changes[p / kBase];
        parts[part].changes[p] =
            AtMost(change, kPartStepsMax) << kPatternBits | static_cast<uint16_t>(p * mark);
        if constexpr (IsEven(kRule)) {
          WordLanes flip = words[0].flips[p % kBase];
          if constexpr (kPartDims == 2) flip = LesserWords(flip, words[1].flips[p / kBase]);
          parts[part].flips[p] = flip << kPatternBits;
        }
      }
    }
  }

  // The least changes of lower halves, and with a changed sign: of patterns, then of the pairs that
  // are shared.
  struct Lowers {
    alignas(64) WordLanes numbers[kForms][Minima::kNumbers];
  };

  void FillLowers(const Part (&parts)[4], Lowers& lowers) const {
    for (int p = 0, at = 0; p < kPatterns; ++p) {
      for (int q = 0; q < kPatterns; ++q, ++at) {
        const WordLanes change = parts[0].changes[q] + parts[1].changes[p];
        lowers.numbers[0][at] = change;
        if constexpr (IsEven(kRule)) {
          const WordLanes flip = LesserWords(parts[0].flips[q], parts[1].flips[p]);
          lowers.numbers[1][at] = AtMost(change + flip, kStepsMax << kPatternBits | at);
        }
      }
    }
    for (auto& numbers : lowers.numbers) {
      for (int i = 0; i < minima_.pair_count; ++i) {
        const auto& pair = minima_.pairs[i];
        numbers[Grid::kHalves + i] = LesserWords(numbers[pair.first], numbers[pair.second]);
      }
    }
  }

  // Finds the nearest points of kWords vectors from v on.
  void FindPoints(int v, const float* scales, Points& points) const {
    Part parts[4];
    FillParts(v, scales, parts);
    Lowers lowers;
    FillLowers(parts, lowers);
    const Best none = {~WordLanes{}, WordLanes{}};
    Best bests[2] = {none, none};
    for (const auto& run : std::span(minima_.runs, static_cast<size_t>(minima_.run_count))) {
      const int q = run.lower_part;
      const int p = run.upper_part;
      const int pattern = p * kPatterns + q;
      const WordLanes change = parts[2].changes[q] + parts[3].changes[p];
      const WordLanes lower = LeastOf(lowers.numbers[0], run);
      if constexpr (kRule != GridRule::kEvenSigns) bests[0].Keep(change + lower, pattern);
      if constexpr (IsEven(kRule)) {
        const WordLanes flip = LesserWords(parts[2].flips[q], parts[3].flips[p]);
        const WordLanes in_upper = AtMost(change + flip, kStepsMax << kPatternBits) + lower;
        const WordLanes in_lower = change + LeastOf(lowers.numbers[1], run);
        bests[kRule == GridRule::kEvenSignPairs].Keep(LesserWords(in_lower, in_upper), pattern);
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

  // Stores the best points with the variants that `points` has.
  void StoreBest(int v, const Best& best, Points& points) const {
    StoreWords(points.uppers + v, best.upper);
    StoreWords(points.lowers + v, best.change & kPatternMask);
    for (int at = v; at < v + kWords; at += kWidth) SumPoints(at, points);
  }

  // Changes one of two vectors that together have an odd number of minus signs: the one for which
  // the change costs less.
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

  WordLanes LeastOf(const WordLanes* numbers, const typename Minima::Run& run) const {
    WordLanes least = numbers[minima_.members[run.begin]];
    for (int i = run.begin + 1; i < run.end; ++i) {
      least = LesserWords(least, numbers[minima_.members[i]]);
    }
    return least;
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

  const Minima& minima_;
  alignas(64) float levels_[8] = {};
  alignas(64) float products_[kDims][kVectors];  // twice weight times magnitude
  alignas(64) float weights_[kDims][kVectors];
  alignas(64) int32_t odd_[kVectors];  // -1 where the number of minus signs is odd
};
