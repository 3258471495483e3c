// The nearest points of a grid to the vectors of a group that shares a scale. Included inside a
// namespace, and a target region where there is one, after quant/lanes.inl.
//
// With the scale t, storing values x as codes c changes their squared error by
//   sum_j w_j (x_j - t c_j)^2 - sum_j w_j x_j^2 = t (t * square - twice),
//   square = sum_j w_j c_j^2,  twice = 2 sum_j w_j x_j c_j,
// and both sums are those of the lower half of the coordinates plus those of the upper half. A half
// has only 81 or 64 patterns, so their sums are computed once, and for a scale their changes are a
// multiplication and a subtraction each. The best point then is found exactly: for the upper
// patterns that can still lead to one, all points with that pattern are tried.

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

constexpr int kGroupVectorsMax = 8;

// What a group is stored as. The variant of a vector is 1 where its shift is -1, or where one of
// its signs is changed to make their number even.
struct GroupPoints {
  uint16_t points[kGroupVectorsMax];
  uint8_t variants[kGroupVectorsMax];
  float square = 0;  // sums over the group
  float twice = 0;

  float Change(float scale) const { return scale * (scale * square - twice); }
  float BestScale() const { return square > 0 ? 0.5f * twice / square : 0; }
};

template <GridRule kRule, class Grid, int kVectors>
class GroupSearch {
 public:
  // [kVectors][kDims] values and weights.
  [[gnu::noinline]] void Prepare(const Grid& grid, const float* values, const float* weights) {
    grid_ = &grid;
    for (int v = 0; v < kVectors; ++v) {
      const float* x = values + v * Grid::kDims;
      const float* w = weights + v * Grid::kDims;
      int minus = 0;
      for (int j = 0; j < Grid::kDims; ++j) minus += std::signbit(x[j]);
      odd_[v] = minus % 2 != 0;
      PrepareHalf(x, w, halves_[v][0]);
      PrepareHalf(x + Grid::kHalfDims, w + Grid::kHalfDims, halves_[v][1]);
    }
  }

  // The points that change the squared error least with this scale > 0.
  [[gnu::noinline]] GroupPoints Nearest(float scale) {
    Choice choices[kVectors][2];
    for (int v = 0; v < kVectors; ++v) FindVariants(v, scale, choices[v]);
    GroupPoints chosen{};
    ChooseVariants(choices, chosen.variants);
    for (int v = 0; v < kVectors; ++v) {
      const Choice& choice = choices[v][chosen.variants[v]];
      const Half& lower = halves_[v][0];
      const Half& upper = halves_[v][1];
      const int l = grid_->lower[choice.point];
      chosen.points[v] = choice.point;
      chosen.square += lower.squares[IsShift(kRule) ? choice.lower : 0][l] +
                       upper.squares[IsShift(kRule) ? choice.upper : 0][choice.pattern];
      chosen.twice += lower.twices[choice.lower][l] + upper.twices[choice.upper][choice.pattern];
    }
    return chosen;
  }

 private:
  static constexpr int kPadded = Grid::kHalvesPadded;
  static constexpr int kForms = kRule == GridRule::kFreeSigns ? 1 : 2;

  // The sums of half a vector for each of its patterns. Form 1: with the shift -1, or with the sign
  // changed that costs least.
  struct Half {
    alignas(64) float squares[kForms][kPadded];
    alignas(64) float twices[kForms][kPadded];
  };

  // The change of each pattern of a half for one scale, divided by the scale.
  using Changes = float[kPadded];

  struct Choice {
    float change = std::numeric_limits<float>::infinity();
    uint16_t point = 0;
    uint8_t pattern = 0;  // the upper one
    uint8_t lower = 0;    // forms
    uint8_t upper = 0;
  };

  struct Hint {
    uint16_t point = 0;
    uint8_t pattern = 0;
  };

  [[gnu::noinline]] void PrepareHalf(const float* x, const float* w, Half& half) const {
    float products[Grid::kHalfDims];
    float sum_products = 0;
    float sum_weights = 0;
    for (int j = 0; j < Grid::kHalfDims; ++j) {
      products[j] = 2 * w[j] * (IsShift(kRule) ? x[j] : std::fabs(x[j]));
      sum_products += products[j];
      sum_weights += w[j];
    }
    for (int k = 0; k < kPadded; k += kWidth) {
      Floats square{};
      Floats twice{};
      Floats linear{};
      Floats smallest = Splat(std::numeric_limits<float>::infinity());
#pragma GCC unroll 4
      for (int j = 0; j < Grid::kHalfDims; ++j) {
        const Floats code = Load(grid_->patterns[j] + k);
        const Floats weighted = Splat(w[j]) * code;
        const Floats term = Splat(products[j]) * code;
        square += weighted * code;
        twice += term;
        if constexpr (IsShift(kRule)) linear += weighted;
        if constexpr (IsEven(kRule)) smallest = Min(term, smallest);
      }
      if constexpr (IsShift(kRule)) {
        const Floats middle = square + Splat(sum_weights);
        Store(half.squares[0] + k, middle + (linear + linear));
        Store(half.squares[1] + k, middle - (linear + linear));
        Store(half.twices[0] + k, twice + Splat(sum_products));
        Store(half.twices[1] + k, twice - Splat(sum_products));
      } else {
        Store(half.squares[0] + k, square);
        Store(half.twices[0] + k, twice);
        if constexpr (IsEven(kRule)) {
          Store(half.twices[1] + k, twice - (smallest + smallest));
        }
      }
    }
  }

  static void FindChanges(const Half& half, int form, float scale, Changes& changes) {
    const float* squares = half.squares[IsShift(kRule) ? form : 0];
    for (int k = 0; k < kPadded; k += kWidth) {
      Store(changes + k, Splat(scale) * Load(squares + k) - Load(half.twices[form] + k));
    }
  }

  static float LeastOf(const Changes& changes) {
    Floats lanes = Load(changes);
    for (int k = kWidth; k < kPadded; k += kWidth) lanes = Min(Load(changes + k), lanes);
    float least[kWidth];
    Store(least, lanes);
    for (int width = kWidth / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) least[i] = std::min(least[i], least[i + width]);
    }
    return least[0];
  }

  // Replaces `best` where a point changes less. `hint` is where the search begins, and becomes the
  // point that was found: at the next scale it is near the best again.
  void FindPoint(const Changes& lower, const Changes& upper, Choice& best, Hint& hint) const {
    const float first = upper[hint.pattern] + lower[grid_->lower[hint.point]];
    if (first < best.change) {
      best.change = first;
      best.point = hint.point;
      best.pattern = hint.pattern;
    }
    const float least = LeastOf(lower);
    for (int h = 0; h < Grid::kHalves; ++h) {
      if (upper[h] + least >= best.change) continue;
      for (int k = grid_->starts[h]; k < grid_->starts[h + 1]; ++k) {
        const float change = upper[h] + lower[grid_->lower[k]];
        if (change < best.change) {
          best.change = change;
          best.point = static_cast<uint16_t>(k);
          best.pattern = static_cast<uint8_t>(h);
        }
      }
    }
    hint = {best.point, best.pattern};
  }

  void FindVariants(int v, float scale, Choice* choices) {
    alignas(64) Changes changes[2][kForms];
    auto find = [&](uint8_t lower, uint8_t upper, Choice start) {
      Choice choice = start;
      FindPoint(changes[0][lower], changes[1][upper], choice, hints_[v][lower][upper]);
      if (choice.change < start.change) {
        choice.lower = lower;
        choice.upper = upper;
      }
      return choice;
    };
    for (int half = 0; half < 2; ++half) {
      for (int form = 0; form < kForms; ++form) {
        FindChanges(halves_[v][half], form, scale, changes[half][form]);
      }
    }
    if constexpr (IsShift(kRule)) {
      choices[0] = find(0, 0, {});
      choices[1] = find(1, 1, {});
    } else if constexpr (kRule == GridRule::kEvenSigns) {
      choices[0] = odd_[v] ? find(0, 1, find(1, 0, {})) : find(0, 0, {});
    } else {
      choices[0] = find(0, 0, {});
      if (kRule == GridRule::kEvenSignPairs && odd_[v] != odd_[v ^ 1]) {
        choices[1] = find(0, 1, find(1, 0, {}));
      }
    }
  }

  // The variants that the rule allows and that change least in sum.
  void ChooseVariants(const Choice (&choices)[kVectors][2], uint8_t* variants) const {
    if constexpr (kRule == GridRule::kShiftPerGroup) {
      float sums[2] = {};
      for (int v = 0; v < kVectors; ++v) {
        sums[0] += choices[v][0].change;
        sums[1] += choices[v][1].change;
      }
      for (int v = 0; v < kVectors; ++v) variants[v] = sums[1] < sums[0];
    } else if constexpr (kRule == GridRule::kShiftPerVector) {
      for (int v = 0; v < kVectors; ++v) variants[v] = choices[v][1].change < choices[v][0].change;
    } else if constexpr (kRule == GridRule::kEvenSignPairs) {
      for (int v = 0; v < kVectors; v += 2) {
        if (odd_[v] == odd_[v + 1]) continue;
        const float first = choices[v][1].change + choices[v + 1][0].change;
        const float second = choices[v][0].change + choices[v + 1][1].change;
        variants[second < first ? v + 1 : v] = 1;
      }
    }
  }

  const Grid* grid_;
  Half halves_[kVectors][2];  // [1]: of the upper coordinates
  Hint hints_[kVectors][kForms][kForms];
  bool odd_[kVectors];  // number of minus signs
};
