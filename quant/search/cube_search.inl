// The nearest points of the grid of IQ1 to the vectors of a block, of those whose coordinates are
// next to the values: its points are dense enough for that. Included inside a namespace, and a
// target region where there is one, after quant/search/grid_search.inl.
//
// A byte holds the error that each choice of a coordinate adds to a vector, in parts of what
// matters to that vector. Sums for four coordinates are tables of 16 bytes, so that the errors of
// 16 and more points of a list are two look-ups and an addition. The differences between points
// that bytes do not tell apart are some hundredths of a percent of the error.

using ByteLanes [[gnu::vector_size(kVectorBytes)]] = uint8_t;
using SixteenBytes [[gnu::vector_size(16)]] = uint8_t;
using EightWords [[gnu::vector_size(16)]] = uint16_t;

static_assert(std::endian::native == std::endian::little, "bytes are paired to words");

inline ByteLanes LoadBytes(const uint8_t* source) {
  ByteLanes v;
  std::memcpy(&v, source, sizeof(v));
  return v;
}

// In every 16 bytes: the first eight of `low` and `high`, or the last, as words.
template <int kHalf, size_t... kByte>
WordLanes PairBytes(ByteLanes low, ByteLanes high, std::index_sequence<kByte...> /*bytes*/) {
  return reinterpret_cast<WordLanes>(__builtin_shufflevector(
      low, high, (kByte / 16 * 16 + kByte % 16 / 2 + kHalf * 8 + kByte % 2 * kVectorBytes)...));
}

inline uint16_t LeastOfWords(WordLanes v) {
  EightWords parts[kVectorBytes / 16];
  std::memcpy(parts, &v, sizeof(v));
  for (int part = 1; part < kVectorBytes / 16; ++part) {
    parts[0] = parts[part] < parts[0] ? parts[part] : parts[0];
  }
  return LeastWord(parts[0]);
}

// The errors that coordinate kCoordinate, whose two choices are bytes 2 * kCoordinate and the next,
// adds to the 16 entries of its table of four coordinates.
template <int kCoordinate, size_t... kByte>
SixteenBytes BytesOfChoices(SixteenBytes costs, std::index_sequence<kByte...> /*bytes*/) {
  return __builtin_shufflevector(
      costs, costs, (2 * kCoordinate + static_cast<int>(kByte >> (kCoordinate % 4) & 1))...);
}

// The table of the errors that the choices of kCount coordinates from kFirst on add.
template <int kFirst, int kCount = 4>
SixteenBytes AddChoices(SixteenBytes costs) {
  constexpr auto kBytes = std::make_index_sequence<16>();
  const SixteenBytes last = BytesOfChoices<kFirst + kCount - 1>(costs, kBytes);
  if constexpr (kCount == 1) {
    return last;
  } else {
    return AddCapped(AddChoices<kFirst, kCount - 1>(costs), last);
  }
}

inline Floats ShiftOf(Ints variants) { return variants != 0 ? Splat(-1.0f) : Splat(1.0f); }

// Replaces the points by those with the other shift where the other points change the error less:
// kTogether vectors at once, which share a scale.
template <int kTogether, int kVectors>
void ChooseShifts(const float (&scales)[kVectors], const GridPoints<kVectors>& minus,
                  GridPoints<kVectors>& points) {
  for (int v = 0; v < kVectors; v += kTogether) {
    const float scale = scales[v];
    if (minus.Sum(v, kTogether).Change(scale) < points.Sum(v, kTogether).Change(scale)) {
      points.Copy(minus, v, kTogether);
    }
  }
}

// group_vectors share a scale.
template <GridRule kRule, class Grid, int kGroupVectors>
class CubeSearch {
 public:
  static constexpr int kDims = 8;
  static constexpr int kVectors = 256 / kDims;
  using Points = GridPoints<kVectors>;

  // levels: what a coordinate can be, [3].
  CubeSearch(const Grid& /*grid*/, const float* levels, const UnitBlock& block)
      : cubes_(CubesOfIq1()) {
    std::copy_n(levels, 3, levels_);
    for (int v = 0; v < kVectors; ++v) {
      for (int j = 0; j < kDims; ++j) {
        values_[j][v] = block.values[v * kDims + j];
        weights_[j][v] = block.weights[v * kDims + j];
      }
    }
  }

  // Finds points that change the squared error least, or nearly so, with a scale > 0 for each
  // vector; all vectors of a group have one scale.
  [[gnu::noinline]] void Nearest(const float (&scales)[kVectors], Points& points) const {
    Points minus;
    std::fill_n(points.variants, kVectors, 0);
    std::fill_n(minus.variants, kVectors, -1);
    NearestOfVariants(scales, points);
    NearestOfVariants(scales, minus);
    ChooseShifts<kRule == GridRule::kShiftPerGroup ? kGroupVectors : 1>(scales, minus, points);
  }

  // Finds the nearest points with the shifts that the variants of the points stand for.
  [[gnu::noinline]] void NearestOfVariants(const float (&scales)[kVectors], Points& points) const {
    TwoCosts costs;
    for (int v = 0; v < kVectors; v += kWidth) {
      PutCosts(v, Load(scales + v), ShiftOf(LoadInts(points.variants + v)), costs);
    }
    ChoosePoints(costs, points);
  }

 private:
  // A byte holds up to this part of the mean sum of two choices.
  static constexpr float kReach = 0.4f;

  // Each vector's cube, and the bytes of its sixteen choices, four to a word.
  struct Costs {
    alignas(64) int32_t cubes[kVectors];
    alignas(64) int32_t words[4][kVectors];
  };
  // The second cube gives one of the coordinates the other pair of levels. It is searched only
  // where the least error of that pair is below the error found in the first cube.
  struct TwoCosts {
    Costs first;
    Costs second;
    alignas(64) int32_t least_of_second[kVectors];
  };

  static Ints ToByte(Floats cost) {
    return __builtin_convertvector(Max(Min(cost + 0.5f, Splat(255.0f)), Floats{}), Ints);
  }

  // The error that the other pair of levels adds to a coordinate, for the coordinate where that
  // error is least.
  struct OtherPair {
    Floats least;
    Floats smaller;  // what the smaller number of the two adds
    Floats greater;
    Ints coordinate;

    // The first number of three adds `to_middle` less than the second, that `to_last` less than the
    // third.
    void Keep(int j, Floats to_middle, Floats to_last, Ints has_last) {
      const Floats middle = Max(has_last ? -to_last : to_middle, Floats{});
      const Floats outer = middle + (has_last ? -to_middle : to_last);
      const Ints nearer = outer < least;
      least = nearer ? outer : least;
      smaller = nearer ? (has_last ? outer : middle) : smaller;
      greater = nearer ? (has_last ? middle : outer) : greater;
      coordinate = nearer ? j - Ints{} : coordinate;
    }
    // The word of choices 4 k to 4 k + 3 with this pair's bytes.
    Ints Replaced(int k, Ints bytes, Ints word) const {
      const Ints lower = (word & ~0xffff) | bytes;
      const Ints upper = (word & 0xffff) | bytes << 16;
      return coordinate == 2 * k ? lower : coordinate == 2 * k + 1 ? upper : word;
    }
  };

  // Two numbers for each coordinate: one of them is the nearest and adds nothing.
  void PutCosts(int v, Floats scale, Floats shift, TwoCosts& costs) const {
    const Floats inverse = scale >= 0x1p-126f ? 1.0f / scale : Floats{};
    const Floats below = (levels_[0] + levels_[1]) + (shift + shift);
    const Floats above = (levels_[1] + levels_[2]) + (shift + shift);
    Floats more[kDims];  // of the greater number of the two
    Floats total = Splat(std::numeric_limits<float>::min());
    Ints cube{};
    OtherPair other = {Splat(std::numeric_limits<float>::max()), Floats{}, Floats{}, Ints{}};
    for (int j = 0; j < kDims; ++j) {
      const Floats weight = Load(weights_[j] + v);
      const Floats value = InReach(Load(values_[j] + v) * inverse);
      const Floats twice = value + value;
      const Floats to_middle = weight * (below - twice) * (levels_[1] - levels_[0]);
      const Floats to_last = weight * (above - twice) * (levels_[2] - levels_[1]);
      const Ints has_last = Sizes(to_last) < Sizes(to_middle);
      more[j] = has_last ? to_last : to_middle;
      total += Sizes(more[j]);
      cube |= has_last & (1 << j);
      other.Keep(j, to_middle, to_last, has_last);
    }
    const Floats unit = (255.0f / kReach) / total;
    const Ints bytes = ToByte(other.smaller * unit) | ToByte(other.greater * unit) << 8;
    for (int k = 0; k < 4; ++k) {
      Ints word{};
      for (int j = 2 * k; j < 2 * k + 2; ++j) {
        const Floats cost = more[j] * unit;
        word |= ToByte(-cost) << (16 * (j % 2)) | ToByte(cost) << (16 * (j % 2) + 8);
      }
      StoreInts(costs.first.words[k] + v, word);
      StoreInts(costs.second.words[k] + v, other.Replaced(k, bytes, word));
    }
    StoreInts(costs.first.cubes + v, cube);
    StoreInts(costs.second.cubes + v, cube ^ (Ints{} + 1) << other.coordinate);
    StoreInts(costs.least_of_second + v, ToByte(Min(other.smaller, other.greater) * unit));
  }

  // The choice that adds least, of equals the least number: with what it adds in the upper byte.
  int Choose(const Costs& costs, int v) const {
    int32_t words[4];
    for (int k = 0; k < 4; ++k) words[k] = costs.words[k][v];
    SixteenBytes of_choices;
    std::memcpy(&of_choices, words, sizeof(words));
    constexpr auto kBytes = std::make_index_sequence<kVectorBytes>();
    const ByteLanes lower = RepeatSixteen<ByteLanes>(AddChoices<0>(of_choices));
    const ByteLanes upper = RepeatSixteen<ByteLanes>(AddChoices<4>(of_choices));
    const uint8_t* choices = cubes_.choices[costs.cubes[v]];
    WordLanes least = ~WordLanes{};
    for (int i = 0; i < Iq1Cubes::kCountMax; i += kVectorBytes) {
      const ByteLanes choice = LoadBytes(choices + i);
      const ByteLanes high = reinterpret_cast<ByteLanes>(reinterpret_cast<WordLanes>(choice) >> 4);
      const ByteLanes sum =
          AddCapped(LookUpBytes(lower, choice & 15), LookUpBytes(upper, high & 15));
      least = LesserWords(least, PairBytes<0>(choice, sum, kBytes));
      least = LesserWords(least, PairBytes<1>(choice, sum, kBytes));
    }
    return LeastOfWords(least);
  }

  // The points with the variants that they have.
  void ChoosePoints(TwoCosts& costs, Points& points) const {
    alignas(64) int32_t chosen[kVectors];
    // Branches on the search's result would be guessed wrongly, so the vectors to look at again are
    // collected.
    int again[kVectors];
    int again_count = 0;
    for (int v = 0; v < kVectors; ++v) {
      chosen[v] = Choose(costs.first, v);
      again[again_count] = v;
      again_count += costs.least_of_second[v] < chosen[v] >> 8;
    }
    for (int i = 0; i < again_count; ++i) {
      const int v = again[i];
      const int second = Choose(costs.second, v);
      const bool is_less = second >> 8 < chosen[v] >> 8;
      chosen[v] = is_less ? second : chosen[v];
      costs.first.cubes[v] = is_less ? costs.second.cubes[v] : costs.first.cubes[v];
    }
    for (int v = 0; v < kVectors; v += kWidth) {
      StorePoints(v, LoadInts(costs.first.cubes + v), LoadInts(chosen + v) & 255, points);
    }
  }

  // The sums of the points whose cubes and choices are known.
  void StorePoints(int v, Ints cube, Ints choice, Points& points) const {
    const Floats shift = ShiftOf(LoadInts(points.variants + v));
    Floats square{};
    Floats twice{};
    Ints patterns[2] = {};
    for (int j = kDims - 1; j >= 0; --j) {
      const Ints number = (cube >> j & 1) + (choice >> j & 1);
      const Floats code = LookUp<Floats>(levels_, number) + shift;
      const Floats weighted = Load(weights_[j] + v) * code;
      square += weighted * code;
      twice += weighted * Load(values_[j] + v);
      Ints& pattern = patterns[j / 4];
      pattern = pattern * 3 + number;
    }
    Store(points.squares + v, square);
    Store(points.twices + v, twice + twice);
    StoreInts(points.uppers + v, patterns[1]);
    StoreInts(points.lowers + v, patterns[0]);
  }

  const Iq1Cubes& cubes_;
  alignas(64) float levels_[8] = {};
  alignas(64) float values_[kDims][kVectors];
  alignas(64) float weights_[kDims][kVectors];
};
