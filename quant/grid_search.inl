// The nearest points of a grid to the vectors of a group that shares a scale, for every scale at
// once. Included inside a namespace, and a target region where there is one, after
// quant/lanes.inl.
//
// With the scale t, storing a vector x as the codes c changes its squared error by
//   sum_j w_j (x_j - t c_j)^2 - sum_j w_j x_j^2 = t (t * square - twice),
//   square = sum_j w_j c_j^2,  twice = 2 sum_j w_j x_j c_j,
// so both sums are computed once per point, and a scale costs a multiplication and a subtraction.
// What a format allows beside the point is a variant with sums of its own.

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

// Variants: 0 and 1 are the shifts +1 and -1, or all signs as they are and one sign changed.
constexpr int VariantCount(GridRule rule) {
  return IsShift(rule) || rule == GridRule::kEvenSignPairs ? 2 : 1;
}

constexpr int kGroupVectorsMax = 8;

// What a group is stored as.
struct GroupPoints {
  uint16_t points[kGroupVectorsMax];
  uint8_t variants[kGroupVectorsMax];
  float square;  // sums over the group
  float twice;

  float Change(float scale) const { return scale * (scale * square - twice); }
  float BestScale() const { return square > 0 ? 0.5f * twice / square : 0; }
};

template <GridRule kRule, int kDims, int kCount, int kVectors>
class GroupSearch {
 public:
  static constexpr int kVariants = VariantCount(kRule);

  // [kVectors][kDims] values and weights.
  void Prepare(const Grid<kDims, kCount>& grid, const float* values, const float* weights) {
    for (int v = 0; v < kVectors; ++v) {
      PrepareVector(grid, v, values + v * kDims, weights + v * kDims);
    }
  }

  // The least changes of squared error that are possible with each of the scales.
  template <int kScales>
  void LeastChanges(const float (&scales)[kScales], float (&changes)[kScales]) const {
    float least[kScales][kVectors][kVariants];
    for (int v = 0; v < kVectors; ++v) {
      for (int variant = 0; variant < kVariants; ++variant) {
        Floats lanes[kScales];
        for (Floats& lane : lanes) lane = Splat(std::numeric_limits<float>::infinity());
        for (int k = 0; k < kCount; k += kWidth) {
          const Floats square = LoadFloats(squares_[v][variant] + k);
          const Floats twice = LoadFloats(twices_[v][variant] + k);
#pragma GCC unroll 8
          for (int s = 0; s < kScales; ++s) {
            lanes[s] = Least(lanes[s], Splat(scales[s]) * square - twice);
          }
        }
        for (int s = 0; s < kScales; ++s) least[s][v][variant] = LeastLane(lanes[s]);
      }
    }
    for (int s = 0; s < kScales; ++s) changes[s] = scales[s] * ChooseVariants(least[s], nullptr);
  }

  // The points that give the least change with this scale.
  GroupPoints Nearest(float scale) const {
    float least[kVectors][kVariants];
    uint16_t points[kVectors][kVariants];
    for (int v = 0; v < kVectors; ++v) {
      for (int variant = 0; variant < kVariants; ++variant) {
        points[v][variant] = NearestPoint(v, variant, scale, least[v][variant]);
      }
    }
    GroupPoints chosen{};
    ChooseVariants(least, chosen.variants);
    for (int v = 0; v < kVectors; ++v) {
      const int variant = chosen.variants[v];
      chosen.points[v] = points[v][variant];
      chosen.square += squares_[v][variant][chosen.points[v]];
      chosen.twice += twices_[v][variant][chosen.points[v]];
    }
    return chosen;
  }

 private:
  static float LeastLane(Floats lanes) {
    float least = lanes[0];
    for (int i = 1; i < kWidth; ++i) least = std::min(least, lanes[i]);
    return least;
  }

  void PrepareVector(const Grid<kDims, kCount>& grid, int v, const float* x, const float* w) {
    float products[kDims];
    float sum_products = 0;
    float sum_weights = 0;
    int minus = 0;
    for (int j = 0; j < kDims; ++j) {
      products[j] = w[j] * (IsShift(kRule) ? x[j] : std::fabs(x[j]));
      sum_products += products[j];
      sum_weights += w[j];
      minus += std::signbit(x[j]);
    }
    odd_[v] = minus % 2 != 0;
    for (int k = 0; k < kCount; k += kWidth) {
      Floats square{};
      Floats product{};
      Floats linear{};
      Floats smallest = Splat(std::numeric_limits<float>::infinity());
#pragma GCC unroll 8
      for (int j = 0; j < kDims; ++j) {
        const Floats code = LoadFloats(grid.columns[j] + k);
        const Floats weighted = Splat(w[j]) * code;
        const Floats term = Splat(products[j]) * code;
        square += weighted * code;
        product += term;
        if constexpr (IsShift(kRule)) linear += weighted;
        if constexpr (kRule == GridRule::kEvenSigns || kRule == GridRule::kEvenSignPairs) {
          smallest = Least(smallest, term);
        }
      }
      const Floats twice = product + product;
      if constexpr (IsShift(kRule)) {
        const Floats middle = square + Splat(sum_weights);
        StoreFloats(middle + (linear + linear), squares_[v][0] + k);
        StoreFloats(middle - (linear + linear), squares_[v][1] + k);
        StoreFloats(twice + Splat(2 * sum_products), twices_[v][0] + k);
        StoreFloats(twice - Splat(2 * sum_products), twices_[v][1] + k);
      } else {
        // Changing a sign takes its term away twice, and the product is doubled.
        const Floats changed = twice - Splat(4) * smallest;
        StoreFloats(square, squares_[v][0] + k);
        const bool change = kRule == GridRule::kEvenSigns && odd_[v];
        StoreFloats(change ? changed : twice, twices_[v][0] + k);
        if constexpr (kRule == GridRule::kEvenSignPairs) {
          StoreFloats(square, squares_[v][1] + k);
          StoreFloats(changed, twices_[v][1] + k);
        }
      }
    }
  }

  uint16_t NearestPoint(int v, int variant, float scale, float& least) const {
    Floats lanes = Splat(std::numeric_limits<float>::infinity());
    Ints where{};
    Ints index{};
    for (int i = 0; i < kWidth; ++i) index[i] = i;
    for (int k = 0; k < kCount; k += kWidth) {
      const Floats change =
          Splat(scale) * LoadFloats(squares_[v][variant] + k) - LoadFloats(twices_[v][variant] + k);
      const Ints less = change < lanes;
      lanes = less ? change : lanes;
      where = less ? index : where;
      index += kWidth;
    }
    int best = 0;
    for (int i = 1; i < kWidth; ++i) {
      if (lanes[i] < lanes[best] || (lanes[i] == lanes[best] && where[i] < where[best])) best = i;
    }
    least = lanes[best];
    return static_cast<uint16_t>(where[best]);
  }

  // The least sum over the vectors that the rule allows.
  float ChooseVariants(const float (&least)[kVectors][kVariants], uint8_t* variants) const {
    uint8_t chosen[kVectors] = {};
    float sum = 0;
    if constexpr (kRule == GridRule::kShiftPerGroup) {
      float other = 0;
      for (int v = 0; v < kVectors; ++v) {
        sum += least[v][0];
        other += least[v][1];
      }
      if (other < sum) {
        sum = other;
        for (uint8_t& variant : chosen) variant = 1;
      }
    } else if constexpr (kRule == GridRule::kShiftPerVector) {
      for (int v = 0; v < kVectors; ++v) {
        chosen[v] = least[v][1] < least[v][0];
        sum += least[v][chosen[v]];
      }
    } else if constexpr (kRule == GridRule::kEvenSignPairs) {
      for (int v = 0; v < kVectors; v += 2) {
        if (odd_[v] != odd_[v + 1]) {
          const bool second = least[v][0] + least[v + 1][1] < least[v][1] + least[v + 1][0];
          chosen[second ? v + 1 : v] = 1;
        }
        sum += least[v][chosen[v]] + least[v + 1][chosen[v + 1]];
      }
    } else {
      for (int v = 0; v < kVectors; ++v) sum += least[v][0];
    }
    if (variants != nullptr) std::copy_n(chosen, kVectors, variants);
    return sum;
  }

  alignas(64) float squares_[kVectors][kVariants][kCount];
  alignas(64) float twices_[kVectors][kVariants][kCount];
  bool odd_[kVectors];
};
