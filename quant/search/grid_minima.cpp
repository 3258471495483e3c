#include "quant/search/grid_minima.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace kvant::quant {
namespace {

// Ascending numbers.
using NumberSet = std::vector<size_t>;

// A pair of numbers gets a minimum of its own only if the minimum serves at least this many sets.
constexpr int kUsesMin = 4;

struct SharedPair {
  size_t first = 0;
  size_t second = 0;
  int uses = 0;
};

// The two numbers below `count` that most of the sets have, the first of equals.
SharedPair FindMostShared(const std::vector<NumberSet>& sets, size_t count) {
  std::vector<int> uses(count * count);
  SharedPair best;
  for (const NumberSet& set : sets) {
    for (size_t j = 1; j < set.size(); ++j) {
      for (size_t i = 0; i < j; ++i) ++uses[set[i] * count + set[j]];
    }
  }
  for (size_t at = 0; at < uses.size(); ++at) {
    if (uses[at] > best.uses) best = {at / count, at % count, uses[at]};
  }
  return best;
}

void ReplacePair(const SharedPair& pair, size_t number, NumberSet& set) {
  const auto first = std::find(set.begin(), set.end(), pair.first);
  const auto second = std::find(set.begin(), set.end(), pair.second);
  if (first == set.end() || second == set.end()) return;
  set.erase(second);
  set.erase(first);
  set.push_back(number);
}

}  // namespace

template <class Grid>
GridMinima<Grid>::GridMinima(const Grid& grid) {
  std::vector<NumberSet> sets(Grid::kHalves);
  for (size_t upper = 0; upper < sets.size(); ++upper) {
    sets[upper].assign(grid.lower + grid.starts[upper], grid.lower + grid.starts[upper + 1]);
    for (uint16_t point = grid.starts[upper]; point < grid.starts[upper + 1]; ++point) {
      points[upper * Grid::kHalves + grid.lower[point]] = point;
    }
  }
  for (; pair_count < kPairsMax; ++pair_count) {
    const size_t number = sets.size() + static_cast<size_t>(pair_count);
    const SharedPair best = FindMostShared(sets, number);
    if (best.uses < kUsesMin) break;
    for (NumberSet& set : sets) ReplacePair(best, number, set);
    pairs[pair_count] = {static_cast<uint16_t>(best.first), static_cast<uint16_t>(best.second)};
  }
  size_t at = 0;
  for (size_t length = Grid::kHalves; length > 0; --length) {
    for (size_t upper = 0; upper < sets.size(); ++upper) {
      if (sets[upper].size() != length) continue;
      Run& run = runs[run_count++];
      run.lower_part = static_cast<uint8_t>(upper % kPatterns);
      run.upper_part = static_cast<uint8_t>(upper / kPatterns);
      run.begin = static_cast<uint16_t>(at);
      for (const size_t number : sets[upper]) members[at++] = static_cast<uint16_t>(number);
      run.end = static_cast<uint16_t>(at);
    }
  }
}

template <class Grid>
const GridMinima<Grid>& MinimaOf(const Grid& grid) {
  static const GridMinima<Grid> minima(grid);
  return minima;
}

template const GridMinima<Grid<8, 2048, 3>>& MinimaOf(const Grid<8, 2048, 3>& grid);
template const GridMinima<Grid<8, 256, 3>>& MinimaOf(const Grid<8, 256, 3>& grid);
template const GridMinima<Grid<8, 512, 3>>& MinimaOf(const Grid<8, 512, 3>& grid);
template const GridMinima<Grid<8, 1024, 3>>& MinimaOf(const Grid<8, 1024, 3>& grid);
template const GridMinima<Grid<4, 256, 8>>& MinimaOf(const Grid<4, 256, 8>& grid);
template const GridMinima<Grid<4, 512, 8>>& MinimaOf(const Grid<4, 512, 8>& grid);

}  // namespace kvant::quant
