// The points of quant/trellis_cells.h next to some values, in units of each of some scales.
// Included inside a namespace, and a target region where there is one, after
// quant/level_search.inl.
//
// The cells whose boxes, or means, are nearest are chosen, then the nearest leaves of these, and
// all their points are compared: a number of steps without branches that hardly varies, which finds
// near points and not always the nearest. Distances are sums of words of 16 bits, those of points
// such that
//
//   sum_k w_k (x_k - r point_k)^2 = r (r squares - products) + sum_k w_k x_k^2
//
// for every scale that is r times the one that the values are in units of.

using Words [[gnu::vector_size(kVectorBytes)]] = int16_t;
using UnsignedWords [[gnu::vector_size(kVectorBytes)]] = uint16_t;
using UnsignedBytes [[gnu::vector_size(kVectorBytes)]] = uint8_t;

constexpr int kVectorsOf16 = kLanes / kWidth;

// The least lane, in every lane.
template <int kStep = kWidth / 2, class Vector>
Vector LeastLane(Vector v) {
  const Vector other = Exchange<kStep>(v);
  v = v < other ? v : other;
  if constexpr (kStep > 1) v = LeastLane<kStep / 2>(v);
  return v;
}

// Some values in units of a scale, and their weights, as words. What they stand for is multiplied
// by `unit`, so that no sum of 8 products leaves 32 bits.
template <int kDims>
struct TrellisTarget {
  static constexpr float kHeaviest = 4096;
  static constexpr float kLargest = 127;
  static constexpr float kStep = 16;  // of products of values and weights

  float unit;
  float square = 0;  // sum_k w_k x_k^2
  int16_t weights[kDims];
  // Of the values, and of their negatives: times weights, and as bytes in the order of boxes.
  int16_t products[2][kDims];
  uint8_t bytes[2][kDims];  // plus 128

  // Values are finite, weights above zero.
  TrellisTarget(const float* values, const float* of_values, float inverse) {
    float x[kDims];
    float largest = kLargest;
    float heaviest = of_values[0];
    for (int k = 0; k < kDims; ++k) {
      // Far outside of the points only the direction counts.
      x[k] = std::clamp(values[k] * inverse, -4096.0f, 4096.0f);
      largest = std::max(largest, std::fabs(x[k]));
      heaviest = std::max(heaviest, of_values[k]);
    }
    const float reach = kLargest / largest;
    unit = kHeaviest * reach * reach / heaviest;
    for (int k = 0; k < kDims; ++k) {
      weights[k] = static_cast<int16_t>(of_values[k] * unit + 0.5f);
      const float weighted = static_cast<float>(weights[k]) * x[k];
      square += weighted * x[k];
      const auto product = static_cast<int>(weighted * (1 / kStep) + std::copysign(0.5f, weighted));
      products[0][k] = static_cast<int16_t>(product);
      products[1][k] = static_cast<int16_t>(-product);
      const auto near = static_cast<int>(std::clamp(x[k], -kLargest, kLargest) + 128.5f);
      const int place = k % 4 == 1 || k % 4 == 2 ? k ^ 3 : k;
      bytes[0][place] = static_cast<uint8_t>(near);
      bytes[1][place] = static_cast<uint8_t>(256 - near);
    }
  }
};

// Numbers of 4 bytes, in every lane.
template <class Vector, class Number>
Vector SplatFour(const Number* numbers) {
  int32_t bits;
  std::memcpy(&bits, numbers, sizeof(bits));
  return reinterpret_cast<Vector>(Ints{} + bits);
}

// Squared distances of sixteen boxes, or of sixteen points, these less what all have in common.
struct SixteenDistances {
  Ints parts[kVectorsOf16];

  SixteenDistances() = default;

  template <int kDims>
  SixteenDistances(const TrellisTarget<kDims>& target, int sign, const uint8_t* boxes) {
    // Squares are words of 15 bits.
    constexpr uint8_t kMost = 181;
#pragma GCC unroll 4
    for (int part = 0; part < kVectorsOf16; ++part) {
      Ints error{};
#pragma GCC unroll 2
      for (int four = 0; four < kDims; four += 4) {
        UnsignedBytes middle;
        UnsignedBytes reach;
        const uint8_t* at = boxes + 2 * four * kLanes + part * kVectorBytes;
        std::memcpy(&middle, at, sizeof(middle));
        std::memcpy(&reach, at + 4 * kLanes, sizeof(reach));
        const auto value = SplatFour<UnsignedBytes>(target.bytes[sign] + four);
        const UnsignedBytes off =
            (value > middle ? value : middle) - (value > middle ? middle : value);
        const UnsignedBytes outside = (off > reach ? off : reach) - reach;
        const UnsignedBytes most = UnsignedBytes{} + kMost;
        const auto both = reinterpret_cast<UnsignedWords>(outside > most ? most : outside);
        const auto even = reinterpret_cast<Words>(both & 255);
        const auto odd = reinterpret_cast<Words>(both >> 8);
        error = AddPairs(error, even * even, SplatFour<Words>(target.weights + four));
        error = AddPairs(error, odd * odd, SplatFour<Words>(target.weights + four + 2));
      }
      parts[part] = error;
    }
  }
};

// For sixteen points: the sums of w point^2 and of w x point / kStep.
struct PointSums {
  Ints squares[kVectorsOf16];
  Ints products[kVectorsOf16];

  template <int kDims>
  PointSums(const TrellisTarget<kDims>& target, int sign, const int8_t* points) {
#pragma GCC unroll 4
    for (int part = 0; part < kVectorsOf16; ++part) {
      Ints square{};
      Ints product{};
#pragma GCC unroll 4
      for (int k = 0; k < kDims; k += 2) {
        const Words point = WidenBytes<Words>(points + k * kLanes + 2 * part * kWidth);
        square = AddPairs(square, point * point, SplatFour<Words>(target.weights + k));
        product = AddPairs(product, point, SplatFour<Words>(target.products[sign] + k));
      }
      squares[part] = square;
      products[part] = product;
    }
  }
};

// Sixteens of errors, and those of them that are among the least, about 8 kEights and at least one:
// as many as are not above a limit, the mean over the lanes of what is number kEights / 2 in the
// lane. Odd numbers take the mean of two ranks, and 1 has lanes in pairs. kMost: sixteens, at most.
template <int kEights, int kMost>
class LeastErrors {
 public:
  LeastErrors() {
    for (auto& rank : least_) {
      for (Ints& part : rank) part = Ints{} + kNone;
    }
  }

  void Set(int n, const SixteenDistances& errors) {
    for (int part = 0; part < kVectorsOf16; ++part) {
      Ints error = errors.parts[part];
      errors_[n][part] = error;
#pragma GCC unroll 8
      for (auto& rank : least_) {
        const Ints least = rank[part];
        rank[part] = error < least ? error : least;
        error = error < least ? least : error;
      }
    }
  }

  // Of `count` sixteens, as numbers in ascending order.
  int Choose(int count, uint16_t* chosen) const {
    const Ints limit = Limit();
    Ints numbers = LanesFrom(0);
    int found = 0;
    for (int n = 0; n < count; ++n) {
      for (int part = 0; part < kVectorsOf16; ++part) {
        found += AppendUpTo(limit, errors_[n][part], numbers, chosen + found);
        numbers += kWidth;
      }
    }
    return found;
  }

 private:
  static constexpr int kRanks = (kEights + 1) / 2;
  static constexpr int32_t kNone = 0x7fffff00;  // sixteen parts of it, rounded up, add up to no
                                                // more than 31 bits

  // Rounded up, so that it is never below all errors.
  Ints Limit() const {
    Ints sum{};
    for (int part = 0; part < kVectorsOf16; ++part) {
      const Ints& last = least_[kRanks - 1][part];
      if constexpr (kEights == 1) {
        const Ints other = kWidth == kLanes ? Exchange<kWidth / 2>(last)
                                            : least_[0][(part + kVectorsOf16 / 2) % kVectorsOf16];
        sum += ((other < last ? other : last) >> 4) + 1;
      } else {
        sum += (last >> 5) + (least_[(kEights - 2) / 2][part] >> 5) + 2;
      }
    }
    return SumOfLanes<kWidth / 2>(sum);
  }

  Ints least_[kRanks][kVectorsOf16];
  Ints errors_[kMost][kVectorsOf16];
};

// How near cells are: the distance of their boxes, or of their means, which takes a third of the
// time where there are two signs and misses more of the nearest points, above all where weights are
// uneven.
enum class CellDistance : uint8_t { kOfBox, kOfMean };

// What points are searched for, and how many of them are compared.
template <int kPoint, int kScalesTogether, int kSignsOfScales, int kNearCells, int kNearLeaves,
          int kGivenUp, CellDistance kCellDistance = CellDistance::kOfBox>
struct TrellisEffort {
  static constexpr int kDims = kPoint;
  static constexpr int kScales = kScalesTogether;
  static constexpr int kSigns = kSignsOfScales;  // 2 where negative scales are stored
  static constexpr int kCells = kNearCells;      // that are read, in eights
  static constexpr int kLeaves = kNearLeaves;    // the same
  // Points with one sign, or of one half of the indices, are given up where the first 16 values
  // leave so many hundredths of the error that the best ones so far have left.
  static constexpr int kHopeless = kGivenUp;
  static constexpr CellDistance kDistance = kCellDistance;
};

// The points next to the vectors of a group of 32 values, or of its negative, for scales that are
// tried together. Sign 1 stands for the negative. Params: a TrellisEffort.
template <class Params>
class PointSearch {
 public:
  static constexpr int kVectors = 32 / Params::kDims;
  static constexpr int kHalf = kVectors / 2;

  struct Found {
    float errors[Params::kScales] = {};  // in units of the scale, sums over what was searched
    int points[Params::kScales][kVectors];
  };

  PointSearch(const TrellisCells& cells, const TrellisTarget<Params::kDims>* targets)
      : cells_(cells), targets_(targets) {
    const int count = cells.count / kLanes;
    // Step by step for all vectors, because each step waits for the one before.
    CellErrors errors[Params::kSigns][kVectors];
    for (int v = 0; v < kVectors; ++v) {
      for (int n = 0; n < count; ++n) Measure(v, n, errors);
    }
    for (int sign = 0; sign < Params::kSigns; ++sign) {
      for (int v = 0; v < kVectors; ++v) near_cells_[sign][v].Choose(errors[sign][v], count);
    }
  }

  // Of the vectors of one half of the group. ratios: of the scales to that of the targets.
  void Find(int half, int sign, const float (&ratios)[Params::kScales], Found& found) {
    const int begin = half * kHalf;
    LeastErrors<Params::kLeaves, kMostNear> errors[kHalf];
    for (int v = begin; v < begin + kHalf; ++v) {
      const auto& near = near_cells_[sign][v];
      for (int n = 0; n < near.count; ++n) {
        errors[v - begin].Set(n,
                              SixteenDistances(targets_[v], sign, cells_.Leaves(near.numbers[n])));
      }
    }
    for (int v = begin; v < begin + kHalf; ++v) {
      near_leaves_[v].Choose(errors[v - begin], near_cells_[sign][v].count);
    }
    for (int v = begin; v < begin + kHalf; ++v) Scan(sign, v, ratios, found);
  }

 private:
  static constexpr int kMostCells = 256;
  using CellErrors = LeastErrors<Params::kCells, kMostCells / kLanes>;
  // Of cells and leaves that are near: more are left out.
  static constexpr int kMostNear = 32;
  static constexpr int kMostLeaves = 128;

  // Numbers of some of kOf.
  template <int kOf, int kMost>
  struct Chosen {
    int count;
    uint16_t numbers[kOf + kLanes];

    template <class Errors>
    void Choose(const Errors& errors, int sixteens) {
      count = std::min(errors.Choose(sixteens, numbers), kMost);
    }
  };
  // An error's last bits are the place of its leaf.
  static constexpr int32_t kPlace = kMostLeaves - 1;

  // Sixteen cells.
  void Measure(int v, int n, CellErrors (&errors)[Params::kSigns][kVectors]) const {
    if constexpr (Params::kDistance == CellDistance::kOfMean) {
      // Squared distances but for what all cells have, over 2 kStep.
      static_assert(Params::kSigns == 2 && 2 * TrellisTarget<Params::kDims>::kStep == 32);
      const PointSums sums(targets_[v], 0, cells_.Means(n));
      SixteenDistances of_signs[2];
      for (int part = 0; part < kVectorsOf16; ++part) {
        of_signs[0].parts[part] = (sums.squares[part] >> 5) - sums.products[part];
        of_signs[1].parts[part] = (sums.squares[part] >> 5) + sums.products[part];
      }
      for (int sign = 0; sign < 2; ++sign) errors[sign][v].Set(n, of_signs[sign]);
    } else {
      for (int sign = 0; sign < Params::kSigns; ++sign) {
        errors[sign][v].Set(n, SixteenDistances(targets_[v], sign, cells_.Cells(n)));
      }
    }
  }

  int Leaf(int sign, int v, int n) const {
    const unsigned leaf = near_leaves_[v].numbers[n];
    return near_cells_[sign][v].numbers[leaf / kLanes] * kLanes + static_cast<int>(leaf % kLanes);
  }

  // Compared are errors without what all points have, and over the scale's ratio.
  void Scan(int sign, int v, const float (&ratios)[Params::kScales], Found& found) const {
    Floats least[Params::kScales][kVectorsOf16];
    for (auto& of_scale : least) {
      for (Floats& part : of_scale) part = Splat(std::numeric_limits<float>::max());
    }
    constexpr float kProduct = 2 * TrellisTarget<Params::kDims>::kStep;
    float over_products[Params::kScales];
    for (int s = 0; s < Params::kScales; ++s) over_products[s] = ratios[s] / kProduct;
    const TrellisTarget<Params::kDims>& target = targets_[v];
    for (int n = 0; n < near_leaves_[v].count; ++n) {
      const PointSums sums(target, sign, cells_.Points(Leaf(sign, v, n)));
#pragma GCC unroll 4
      for (int part = 0; part < kVectorsOf16; ++part) {
        const Floats squares = __builtin_convertvector(sums.squares[part], Floats);
        const Floats products = __builtin_convertvector(sums.products[part], Floats);
#pragma GCC unroll 8
        for (int s = 0; s < Params::kScales; ++s) {
          const Floats error = over_products[s] * squares - products;
          const Ints placed =
              SelectBits(Ints{} + kPlace, Ints{} + n, reinterpret_cast<Ints>(error));
          least[s][part] = Min(reinterpret_cast<Floats>(placed), least[s][part]);
        }
      }
    }
    const float inverse_unit = 1 / target.unit;
    for (int s = 0; s < Params::kScales; ++s) {
      Floats best = least[s][0];
      for (int part = 1; part < kVectorsOf16; ++part) best = Min(least[s][part], best);
      best = LeastLane(best);
      int lane = kLanes;
      for (int part = kVectorsOf16 - 1; part >= 0; --part) {
        const int of_part = FirstEqual(least[s][part], best);
        lane = of_part < kWidth ? part * kWidth + of_part : lane;
      }
      const int32_t bits = std::bit_cast<int32_t>(best[0]);
      const float error =
          kProduct * ratios[s] * std::bit_cast<float>(bits & ~kPlace) + target.square;
      found.errors[s] += error * inverse_unit;
      found.points[s][v] = Leaf(sign, v, bits & kPlace) * kLanes + lane;
    }
  }

  const TrellisCells& cells_;
  const TrellisTarget<Params::kDims>* targets_;
  Chosen<kMostCells, kMostNear> near_cells_[Params::kSigns][kVectors];
  Chosen<kMostNear * kLanes, kMostLeaves> near_leaves_[kVectors];
};
