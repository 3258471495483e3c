// The points of quant/search/trellis_cells.h next to some values, in units of each of some scales.
// Included inside a namespace, and a target region where there is one, after
// quant/search/level_search.inl.
//
// The cells whose boxes, or means, are nearest are chosen, then the nearest leaves of these, and
// all their points are compared: a number of steps without branches that hardly varies, which finds
// near points and not always the nearest. Distances are whole numbers. Values x are in units of a
// scale `base`, and points in units of `multiple` are compared by the bracket of
//
//   sum_k w_k (x_k - multiple / base point_k)^2 - sum_k w_k x_k^2
//       = multiple / base^2 [multiple sum_k w_k point_k^2 - 2 base sum_k w_k x_k point_k]

using Words [[gnu::vector_size(kVectorBytes)]] = int16_t;
using UnsignedWords [[gnu::vector_size(kVectorBytes)]] = uint16_t;
using SignedBytes [[gnu::vector_size(kVectorBytes)]] = int8_t;
using UnsignedBytes [[gnu::vector_size(kVectorBytes)]] = uint8_t;

constexpr int kVectorsOf16 = kLanes / kWidth;

// The lesser of each lane and the one kStep beside it: of `a` in lanes whose numbers have the bit
// kStep clear, of `b` in the others.
template <int kStep, size_t... kLane>
Ints LesserOfPairs(Ints a, Ints b, std::index_sequence<kLane...> /*lanes*/) {
  constexpr auto kBoth = size_t{kWidth};
  const Ints own = __builtin_shufflevector(a, b, ((kLane & kStep) != 0 ? kLane + kBoth : kLane)...);
  const Ints other = __builtin_shufflevector(
      a, b, ((kLane & kStep) != 0 ? (kLane ^ kStep) + kBoth : kLane ^ kStep)...);
  return own < other ? own : other;
}

// The least lane of each of kCount vectors, a power of two: that of vector n in lane n % kWidth of
// vector n / kWidth, and in all lanes that are kCount apart.
template <int kCount, int kStep = 1>
void LeastLanes(Ints* vectors) {
  if constexpr (kStep < kWidth) {
    constexpr int kHalf = std::max(kCount / 2, 1);
    for (int n = 0; n < kHalf; ++n) {
      vectors[n] = LesserOfPairs<kStep>(vectors[2 * n % kCount], vectors[(2 * n + 1) % kCount],
                                        std::make_index_sequence<kWidth>());
    }
    LeastLanes<kHalf, 2 * kStep>(vectors);
  }
}

// The scale that values are in units of, a multiple of the row's factor. As a factor of sums it is
// doubled as often as it stays below 128.
struct TrellisBase {
  float multiple;
  float doubled;
  float doublings = 1;  // the power of two

  explicit TrellisBase(float of_row) : multiple(std::clamp(of_row, 1.0f, 127.0f)) {
    for (doubled = multiple; doubled < 64; doubled *= 2) doublings *= 2;
  }
};

// Some values in units of a scale, and their weights, as words. What they stand for is multiplied
// by `unit`, so that no sum of products leaves 32 bits.
template <int kDims>
struct TrellisTarget {
  static constexpr float kAllWeights = 32760;
  static constexpr float kLargest = 127;
  static constexpr int kSquareBits = 13;  // that are left out of sums of squares
  static constexpr float kReach = 0.65f;  // of the spread: scales that boxes are near for

  float unit;
  float square = 0;  // sum_k w_k x_k^2
  int16_t weights[kDims];
  // The values, and their negatives, times weights and half the doubled base, over 2^kSquareBits.
  int16_t products[2][kDims];
  // In the order of boxes: between which numbers they are at scales that boxes are near for, plus
  // 128, and roots of weights, the greatest 64.
  uint8_t from[2][kDims];
  uint8_t to[2][kDims];
  int8_t roots[kDims];

  // Values are finite, weights above zero. `spread`: how far from the scale others are tried, as a
  // part of it.
  TrellisTarget(const float* values, const float* of_values, float inverse, const TrellisBase& base,
                float spread) {
    float x[kDims];
    float largest = kLargest;
    float all = 0;
    float heaviest = 0;
    for (int k = 0; k < kDims; ++k) {
      // Far outside of the points only the direction counts.
      x[k] = std::clamp(values[k] * inverse, -4096.0f, 4096.0f);
      largest = std::max(largest, std::fabs(x[k]));
      heaviest = std::max(heaviest, of_values[k]);
      all += of_values[k];
    }
    const float shrunk = kLargest / largest;
    unit = kAllWeights * shrunk * shrunk / all;
    const float product_unit = base.doubled / (2 << kSquareBits);
    const float root_unit = 64 * 64 / heaviest;
    for (int k = 0; k < kDims; ++k) {
      weights[k] = static_cast<int16_t>(of_values[k] * unit + 0.5f);
      const float weighted = static_cast<float>(weights[k]) * x[k];
      square += weighted * x[k];
      const auto product =
          static_cast<int>(weighted * product_unit + std::copysign(0.5f, weighted));
      products[0][k] = static_cast<int16_t>(product);
      products[1][k] = static_cast<int16_t>(-product);
      const float inside = std::clamp(x[k], -kLargest, kLargest);
      const auto near = static_cast<int>(inside + 128.5f);
      const auto reach = static_cast<int>(std::fabs(inside) * kReach * spread);
      const int place = k % 4 == 1 || k % 4 == 2 ? k ^ 3 : k;
      from[0][place] = static_cast<uint8_t>(std::max(near - reach, 1));
      to[0][place] = static_cast<uint8_t>(std::min(near + reach, 255));
      from[1][place] = static_cast<uint8_t>(256 - to[0][place]);
      to[1][place] = static_cast<uint8_t>(256 - from[0][place]);
      roots[place] = static_cast<int8_t>(std::sqrt(of_values[k] * root_unit) + 0.5f);
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

// How far from a target sixteen boxes begin, in the coordinates that lie at `boxes`, `four` and its
// next three.
template <int kDims>
UnsignedBytes GapsTo(const TrellisTarget<kDims>& target, int sign, int four, const uint8_t* boxes) {
  UnsignedBytes least;
  UnsignedBytes greatest;
  std::memcpy(&least, boxes, sizeof(least));
  std::memcpy(&greatest, boxes + 4 * kLanes, sizeof(greatest));
  const auto from = SplatFour<UnsignedBytes>(target.from[sign] + four);
  const auto to = SplatFour<UnsignedBytes>(target.to[sign] + four);
  // The gap between both, and all that the target takes.
  const UnsignedBytes both = (least > to ? least : to) - (greatest < from ? greatest : from);
  return both - (to - from);
}

// Distances of sixteen boxes, or distances of sixteen points less a part that all points have in
// common.
struct SixteenDistances {
  Ints parts[kVectorsOf16];
};

// Sums of weights and squares.
template <int kDims>
SixteenDistances SquaresToBoxes(const TrellisTarget<kDims>& target, int sign,
                                const uint8_t* boxes) {
  // Squares are words of 15 bits.
  constexpr uint8_t kMost = 181;
  SixteenDistances distances;
#pragma GCC unroll 4
  for (int part = 0; part < kVectorsOf16; ++part) {
    Ints error{};
#pragma GCC unroll 2
    for (int four = 0; four < kDims; four += 4) {
      const UnsignedBytes gaps =
          GapsTo(target, sign, four, boxes + 2 * four * kLanes + part * kVectorBytes);
      const UnsignedBytes most = UnsignedBytes{} + kMost;
      const auto both = reinterpret_cast<UnsignedWords>(gaps > most ? most : gaps);
      const auto even = reinterpret_cast<Words>(both & 255);
      const auto odd = reinterpret_cast<Words>(both >> 8);
      error = AddPairs(error, even * even, SplatFour<Words>(target.weights + four));
      error = AddPairs(error, odd * odd, SplatFour<Words>(target.weights + four + 2));
    }
    distances.parts[part] = error;
  }
  return distances;
}

// Sums of roots of weights and lengths: half the steps, and good enough to choose cells.
template <int kDims>
SixteenDistances LengthsToBoxes(const TrellisTarget<kDims>& target, int sign,
                                const uint8_t* boxes) {
  SixteenDistances distances;
#pragma GCC unroll 4
  for (int part = 0; part < kVectorsOf16; ++part) {
    Ints error{};
#pragma GCC unroll 2
    for (int four = 0; four < kDims; four += 4) {
      const UnsignedBytes gaps =
          GapsTo(target, sign, four, boxes + 2 * four * kLanes + part * kVectorBytes);
      error = AddFours(error, gaps, SplatFour<SignedBytes>(target.roots + four));
    }
    distances.parts[part] = error;
  }
  return distances;
}

// The sums of sixteen points: of w point^2, over 2^kSquareBits and less 2^15, in the lower words,
// and of products times points.
struct PointSums {
  Words squares[kVectorsOf16];
  Ints products[kVectorsOf16];

  template <int kDims>
  PointSums(const TrellisTarget<kDims>& target, int sign, const int8_t* points) {
    constexpr int kBits = TrellisTarget<kDims>::kSquareBits;
#pragma GCC unroll 4
    for (int part = 0; part < kVectorsOf16; ++part) {
      Ints square = Ints{} + ((1 << kBits) / 2 - (1 << (kBits + 15)));
      Ints product{};
#pragma GCC unroll 4
      for (int k = 0; k < kDims; k += 2) {
        const Words point = WidenBytes<Words>(points + k * kLanes + 2 * part * kWidth);
        square = AddPairs(square, point * point, SplatFour<Words>(target.weights + k));
        product = AddPairs(product, point, SplatFour<Words>(target.products[sign] + k));
      }
      squares[part] = reinterpret_cast<Words>(square >> kBits);
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

  // Writes the numbers of the least of `count` sixteens of errors in ascending order; returns how
  // many.
  int Choose(int count, int32_t* chosen) const {
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

// How near cells are: the distance of their boxes, or of their means, which takes less time where
// there are two signs and misses more of the nearest points, above all where weights are uneven.
enum class CellDistance : uint8_t { kOfBox, kOfMean };

// The points that are searched for, and how many of them are compared.
template <int kPoint, int kScalesTogether, int kSignsOfScales, int kNearCells, int kNearLeaves,
          int kGivenUp, CellDistance kCellDistance = CellDistance::kOfBox>
struct TrellisEffort {
  static constexpr int kDims = kPoint;
  static constexpr int kScales = kScalesTogether;
  static constexpr int kSigns = kSignsOfScales;  // 2 where negative scales are stored
  static constexpr int kCells = kNearCells;      // that are read, in eights
  static constexpr int kLeaves = kNearLeaves;    // the same
  // Points with one sign, or of one half of the indices, are given up where the first 16 values
  // leave this many hundredths of the error that the best points so far have left.
  static constexpr int kHopeless = kGivenUp;
  static constexpr CellDistance kDistance = kCellDistance;
};

// Errors are compared with the place of a leaf in their last bits.
constexpr int kPlaceBits = 6;
// Products have half the base, and are taken twice.
constexpr int kProductShift = kPlaceBits + 2;

// The stored scales that are tried together. Results about them have a lane each.
template <int kScales>
struct TriedScales {
  static constexpr int kRows = kScales <= 4 ? 4 : kScales <= 8 ? 8 : 16;
  static constexpr int kParts = kRows <= kWidth ? 1 : kRows / kWidth;

  int fields[kScales];       // of a block
  int32_t factors[kRows];    // doubled multiples, above the bits of places
  Floats of_errors[kParts];  // what an error is multiplied by
  Ints offsets[kParts];      // what is added before, because squares are less 2^15

  // multiples: what the fields stand for, without signs.
  TriedScales(const TrellisBase& base, const int (&of_block)[kScales],
              const float (&multiples)[kScales]) {
    std::copy_n(of_block, kScales, fields);
    float of_all[kRows];  // the last one again and again
    for (int s = 0; s < kRows; ++s) {
      const float multiple = multiples[std::min(s, kScales - 1)];
      factors[s] = static_cast<int32_t>(multiple * base.doublings) << kPlaceBits;
      // 2^13 multiple / base^2, over what factors are multiplied by
      of_all[s] = 128 * multiple / (base.multiple * base.doubled);
    }
    for (int lane = 0; lane < kParts * kWidth; ++lane) {
      offsets[lane / kWidth][lane % kWidth] = factors[lane % kRows] << 15;
      of_errors[lane / kWidth][lane % kWidth] = of_all[lane % kRows];
    }
  }
};

// The points next to the vectors of a group of 32 values, or of its negative, for scales that are
// tried together. Sign 1 stands for the negative. Params: a TrellisEffort.
template <class Params>
class PointSearch {
 public:
  static constexpr int kVectors = 32 / Params::kDims;
  static constexpr int kHalf = kVectors / 2;
  using Scales = TriedScales<Params::kScales>;

  struct Found {
    Floats errors[Scales::kParts] = {};  // in units of the scale, sums over what was searched
    Ints places[kVectors][Scales::kParts];

    float Error(int s) const { return errors[s / kWidth][s % kWidth]; }
  };

  PointSearch(const TrellisCells& cells, const TrellisTarget<Params::kDims>* targets,
              const TrellisBase& base)
      : cells_(cells), targets_(targets) {
    const int count = cells.count / kLanes;
    // Step by step for all vectors, because each step waits for the one before.
    CellErrors errors[Params::kSigns][kVectors];
    for (int v = 0; v < kVectors; ++v) {
      for (int n = 0; n < count; ++n) Measure(v, n, base, errors);
    }
    for (int sign = 0; sign < Params::kSigns; ++sign) {
      for (int v = 0; v < kVectors; ++v) near_cells_[sign][v].Choose(errors[sign][v], count);
    }
  }

  // Finds the points next to the vectors of one half of the group.
  void Find(int half, int sign, const Scales& scales, Found& found) {
    const int begin = half * kHalf;
    LeastErrors<Params::kLeaves, kMostNear> errors[kHalf];
    for (int v = begin; v < begin + kHalf; ++v) {
      const auto& near = near_cells_[sign][v];
      for (int n = 0; n < near.count; ++n) {
        errors[v - begin].Set(n, SquaresToBoxes(targets_[v], sign, cells_.Leaves(near.numbers[n])));
      }
    }
    for (int v = begin; v < begin + kHalf; ++v) {
      near_leaves_[v].Choose(errors[v - begin], near_cells_[sign][v].count);
    }
    for (int v = begin; v < begin + kHalf; ++v) Scan(sign, v, scales, found);
  }

  // The point of vector v, among those that Find found last for a sign, that is nearest in units of
  // scale s.
  int Point(const Found& found, int sign, int v, int s) const {
    const int place = found.places[v][s / kWidth][s % kWidth];
    return Leaf(sign, v, place & kPlace) * kLanes + (place >> kPlaceBits & (kLanes - 1));
  }

 private:
  static constexpr int kMostCells = 256;
  using CellErrors = LeastErrors<Params::kCells, kMostCells / kLanes>;
  // Cells and leaves that are near, at most; more are left out.
  static constexpr int kMostNear = 32;
  static constexpr int kMostLeaves = 1 << kPlaceBits;

  // Numbers of some of kOf.
  template <int kOf, int kMost>
  struct Chosen {
    int count;
    int32_t numbers[kOf + kLanes];

    template <class Errors>
    void Choose(const Errors& errors, int sixteens) {
      count = std::min(errors.Choose(sixteens, numbers), kMost);
    }
  };
  static constexpr int32_t kPlace = kMostLeaves - 1;
  static constexpr int32_t kLaneAndPlace = kMostLeaves * kLanes - 1;

  // Sixteen cells.
  void Measure(int v, int n, const TrellisBase& base,
               CellErrors (&errors)[Params::kSigns][kVectors]) const {
    if constexpr (Params::kDistance == CellDistance::kOfMean) {
      static_assert(Params::kSigns == 2);
      const PointSums sums(targets_[v], 0, cells_.Means(n));
      const auto factor = reinterpret_cast<Words>(
          Ints{} + (static_cast<int32_t>(base.doubled + 0.5f) << kPlaceBits));
      SixteenDistances of_signs[2];
      for (int part = 0; part < kVectorsOf16; ++part) {
        const Ints product = sums.products[part] << kProductShift;
        const Ints square = AddPairs(Ints{}, sums.squares[part], factor);
        of_signs[0].parts[part] = square - product;
        of_signs[1].parts[part] = square + product;
      }
      for (int sign = 0; sign < 2; ++sign) errors[sign][v].Set(n, of_signs[sign]);
    } else {
      for (int sign = 0; sign < Params::kSigns; ++sign) {
        errors[sign][v].Set(n, LengthsToBoxes(targets_[v], sign, cells_.Cells(n)));
      }
    }
  }

  int Leaf(int sign, int v, int n) const {
    const auto leaf = static_cast<unsigned>(near_leaves_[v].numbers[n]);
    return near_cells_[sign][v].numbers[leaf / kLanes] * kLanes + static_cast<int>(leaf % kLanes);
  }

  // Compared are errors without what all points have, and over the scale's multiple.
  void Scan(int sign, int v, const Scales& scales, Found& found) const {
    const TrellisTarget<Params::kDims>& target = targets_[v];
    // In a loop of its own, because its steps mostly wait for each other.
    const int count = near_leaves_[v].count;
    Words squares[kVectorsOf16][kMostLeaves];
    Ints placed[kVectorsOf16][kMostLeaves];
    for (int n = 0; n < count; ++n) {
      const PointSums sums(target, sign, cells_.Points(Leaf(sign, v, n)));
#pragma GCC unroll 4
      for (int part = 0; part < kVectorsOf16; ++part) {
        squares[part][n] = sums.squares[part];
        placed[part][n] = n - (sums.products[part] << kProductShift);
      }
    }
    constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
    Ints least[Scales::kRows];
    for (Ints& of_scale : least) of_scale = Ints{} + kNone;
#pragma GCC unroll 4
    for (int part = 0; part < kVectorsOf16; ++part) {
      Ints of_part[Params::kScales];
      for (Ints& of_scale : of_part) of_scale = Ints{} + kNone;
      for (int n = 0; n < count; ++n) {
#pragma GCC unroll 16
        for (int s = 0; s < Params::kScales; ++s) {
          const auto factor = reinterpret_cast<Words>(Ints{} + scales.factors[s]);
          const Ints error = AddPairs(placed[part][n], squares[part][n], factor);
          of_part[s] = error < of_part[s] ? error : of_part[s];
        }
      }
      const Ints lanes = LanesFrom(part * kWidth) << kPlaceBits;
#pragma GCC unroll 16
      for (int s = 0; s < Scales::kRows; ++s) {
        const Ints error = SelectBits(Ints{} + (kLaneAndPlace ^ kPlace), lanes,
                                      of_part[std::min(s, Params::kScales - 1)]);
        least[s] = error < least[s] ? error : least[s];
      }
    }
    LeastLanes<Scales::kRows>(least);
    const float inverse_unit = 1 / target.unit;
    for (int part = 0; part < Scales::kParts; ++part) {
      found.places[v][part] = least[part];
      const Floats error =
          __builtin_convertvector((least[part] & ~kLaneAndPlace) + scales.offsets[part], Floats);
      found.errors[part] += (error * scales.of_errors[part] + target.square) * inverse_unit;
    }
  }

  const TrellisCells& cells_;
  const TrellisTarget<Params::kDims>* targets_;
  Chosen<kMostCells, kMostNear> near_cells_[Params::kSigns][kVectors];
  Chosen<kMostNear * kLanes, kMostLeaves> near_leaves_[kVectors];
};
