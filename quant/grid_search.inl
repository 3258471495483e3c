// The nearest points of a grid to the vectors of a block, of which a lane is one. Included inside a
// namespace, and a target region where there is one, after quant/level_search.inl.
//
// With the scale t, storing values x as codes c changes their squared error by
//   sum_j w_j (x_j - t c_j)^2 - sum_j w_j x_j^2 = t (t * square - twice),
//   square = sum_j w_j c_j^2,  twice = 2 sum_j w_j x_j c_j,
// and t * square - twice is the sum of that of the lower half of the coordinates and that of the
// upper half. A half has only 81 or 64 patterns. The lower ones lie in memory, for each lane; for
// each upper pattern the least of its points' lower ones is found by as many minima as it has
// points. The numbers are compared without their last seven bits, which hold the lower pattern, so
// the point is the best one but for 2^-16 of its halves' numbers.

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

// kBase: how many numbers a coordinate can be; group_vectors share a scale.
template <GridRule kRule, class Grid, int kBase, int kGroupVectors>
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
        const float product = 2 * block.weighted[v * kDims + j];
        minus ^= std::bit_cast<uint32_t>(value) >> 31;
        products_[j][v] = IsShift(kRule) ? product : std::fabs(product);
        weights_[j][v] = block.weights[v * kDims + j];
      }
      odd_[v] = minus != 0 ? -1 : 0;
    }
  }

  // The points that change the squared error least, with a scale > 0 for each vector, the same for
  // those of a group.
  [[gnu::noinline]] void Nearest(const float (&scales)[kVectors], Points& points) const {
    if constexpr (IsShift(kRule)) {
      Points minus;
      for (int v = 0; v < kVectors; v += kWidth) {
        FindPoints(v, Load(scales + v), 1.0f, points);
        FindPoints(v, Load(scales + v), -1.0f, minus);
      }
      ChooseShifts(scales, minus, points);
    } else {
      for (int v = 0; v < kVectors; v += kWidth) FindPoints(v, Load(scales + v), 0.0f, points);
    }
  }

 private:
  // Halves of halves: two coordinates of eight, one of four.
  static constexpr int kPartDims = kDims / 4;
  static constexpr int kPatterns = kPartDims == 2 ? kBase * kBase : kBase;
  static constexpr int kLowerMask = 127;
  static_assert(kPatterns * kPatterns == Grid::kHalves && Grid::kHalves <= kLowerMask + 1);

  // For the patterns of a part: t * square - twice, and what changing its cheapest sign adds.
  struct Part {
    Floats changes[kPatterns];
    Floats flips[IsEven(kRule) ? kPatterns : 1];
  };
  struct Best {
    Floats change, lower;
    Ints upper;

    void Keep(Floats candidate, Floats of_lower, int h) {
      const Ints nearer = candidate < change;
      change = Min(candidate, change);
      lower = nearer ? of_lower : lower;
      upper = nearer ? h - Ints{} : upper;
    }
  };

  void FillPart(int first, int v, Floats scale, float shift, Ints flips_count, Part& part) const {
    Floats changes[kPartDims][kBase];
    Floats flips[kPartDims][kBase];
    for (int j = 0; j < kPartDims; ++j) {
      const Floats product = Load(products_[first + j] + v);
      const Floats curvature = scale * Load(weights_[first + j] + v);
      for (int d = 0; d < kBase; ++d) {
        const float level = levels_[d] + shift;
        changes[j][d] = (curvature * level - product) * level;
        if constexpr (IsEven(kRule)) flips[j][d] = OrZero(flips_count, product * (2 * level));
      }
    }
    for (int p = 0; p < kPatterns; ++p) {
      if constexpr (kPartDims == 1) {
        part.changes[p] = changes[0][p];
        if constexpr (IsEven(kRule)) part.flips[p] = flips[0][p];
      } else {
        part.changes[p] = changes[0][p % kBase] + changes[1][p / kBase];
        if constexpr (IsEven(kRule)) part.flips[p] = Min(flips[0][p % kBase], flips[1][p / kBase]);
      }
    }
  }

  // Of the vectors from v on.
  void FindPoints(int v, Floats scale, float shift, Points& points) const {
    const Ints odd = LoadInts(odd_ + v);
    const Ints pair_odd = odd ^ Swapped(odd);
    const Ints flips = kRule == GridRule::kEvenSignPairs ? pair_odd : odd;
    Part parts[4];
    for (int part = 0; part < 4; ++part) {
      FillPart(part * kPartDims, v, scale, shift, flips, parts[part]);
    }
    constexpr int kForms = IsEven(kRule) ? 2 : 1;
    alignas(64) float lowers[kForms][Grid::kHalves * kWidth];
    for (int p = 0, at = 0; p < kPatterns; ++p) {
      for (int q = 0; q < kPatterns; ++q, ++at) {
        const Floats change = parts[0].changes[q] + parts[1].changes[p];
        Store(lowers[0] + at * kWidth, Marked(change, at));
        if constexpr (IsEven(kRule)) {
          const Floats flip = Min(parts[0].flips[q], parts[1].flips[p]);
          Store(lowers[1] + at * kWidth, Marked(change + flip, at));
        }
      }
    }
    const Best none = {Splat(std::numeric_limits<float>::infinity()), Floats{}, Ints{}};
    Best bests[2] = {none, none};
    for (const auto& run : std::span(grid_.runs, static_cast<size_t>(grid_.run_count))) {
      const int h = run.upper;
      const int q = h % kPatterns;
      const int p = h / kPatterns;
      const Floats upper = parts[2].changes[q] + parts[3].changes[p];
      const Floats lower = LeastOf(lowers[0], run);
      if constexpr (kRule != GridRule::kEvenSigns) bests[0].Keep(upper + lower, lower, h);
      if constexpr (IsEven(kRule)) {
        const Floats flip = Min(parts[2].flips[q], parts[3].flips[p]);
        const Floats flipped = LeastOf(lowers[1], run);
        const Floats in_upper = (upper + flip) + lower;
        const Floats in_lower = upper + flipped;
        bests[kRule == GridRule::kEvenSignPairs].Keep(Min(in_lower, in_upper),
                                                      in_lower < in_upper ? flipped : lower, h);
      }
    }
    Ints variant = kRule == GridRule::kEvenSigns ? odd : shift < 0 ? ~Ints{} : Ints{};
    Best& best = bests[0];
    if constexpr (kRule == GridRule::kEvenSignPairs) {
      const Floats more = bests[1].change - bests[0].change;
      const Floats other = Swapped(more);
      const Ints second = -(LanesFrom(0) & 1);
      variant = pair_odd & ((more < other) | ((more == other) & ~second));
      best.lower = variant ? bests[1].lower : best.lower;
      best.upper = variant ? bests[1].upper : best.upper;
    }
    const Ints lower = reinterpret_cast<Ints>(best.lower) & kLowerMask;
    StorePoints(v, shift, best.upper, lower, variant, points);
  }

  // With the lower pattern in the last bits.
  static Floats Marked(Floats change, int pattern) {
    return reinterpret_cast<Floats>((reinterpret_cast<Ints>(change) & ~kLowerMask) | pattern);
  }

  static Floats LoadRun(const float* lowers, size_t run) {
    Floats v;
    std::memcpy(&v, reinterpret_cast<const char*>(lowers) + run * (kWidth / 4), sizeof(v));
    return v;
  }

  Floats LeastOf(const float* lowers, const typename Grid::Run& run) const {
    const uint16_t* at = grid_.of_runs + run.begin;
    const uint16_t* end = grid_.of_runs + run.end;
    Floats even = LoadRun(lowers, at[0]);
    Floats odd = LoadRun(lowers, at[1]);
    for (at += 2; at < end; at += 2) {
      even = Min(even, LoadRun(lowers, at[0]));
      odd = Min(odd, LoadRun(lowers, at[1]));
    }
    return Min(even, odd);
  }

  template <class Vector, size_t... kLane>
  static Vector SwappedLanes(Vector v, std::index_sequence<kLane...> /*lanes*/) {
    return __builtin_shufflevector(v, v, (kLane ^ 1)...);
  }
  template <class Vector>
  static Vector Swapped(Vector v) {
    return SwappedLanes(v, std::make_index_sequence<kWidth>());
  }

  // The sums of the points whose patterns are known.
  void StorePoints(int v, float shift, Ints upper, Ints lower, Ints variant, Points& points) const {
    Floats square{};
    Floats twice{};
    Floats smallest = Splat(std::numeric_limits<float>::infinity());
    for (int half = 0; half < 2; ++half) {
      Ints left = half == 0 ? lower : upper;
      for (int j = 0; j < Grid::kHalfDims; ++j) {
        const Ints rest = kBase == 8 ? left >> 3 : left * 171 >> 9;
        const Floats code = LookUp<Floats>(levels_, left - rest * kBase) + shift;
        left = rest;
        const int at = half * Grid::kHalfDims + j;
        const Floats term = Load(products_[at] + v) * code;
        square += Load(weights_[at] + v) * code * code;
        twice += term;
        smallest = Min(term, smallest);
      }
    }
    if constexpr (IsEven(kRule)) twice -= OrZero(variant, smallest + smallest);
    Store(points.squares + v, square);
    Store(points.twices + v, twice);
    StoreInts(points.uppers + v, upper);
    StoreInts(points.lowers + v, lower);
    StoreInts(points.variants + v, variant);
  }

  // Replaces the points by those with the other shift where these change less: the vectors alone,
  // or groups of them.
  void ChooseShifts(const float (&scales)[kVectors], const Points& minus, Points& points) const {
    constexpr int kTogether = kRule == GridRule::kShiftPerGroup ? kGroupVectors : 1;
    for (int v = 0; v < kVectors; v += kTogether) {
      const float scale = scales[v];
      if (minus.Sum(v, kTogether).Change(scale) < points.Sum(v, kTogether).Change(scale)) {
        points.Copy(minus, v, kTogether);
      }
    }
  }

  const Grid& grid_;
  alignas(64) float levels_[8] = {};
  alignas(64) float products_[kDims][kVectors];  // twice weight times value
  alignas(64) float weights_[kDims][kVectors];
  alignas(64) int32_t odd_[kVectors];  // -1 where the number of minus signs is odd
};
