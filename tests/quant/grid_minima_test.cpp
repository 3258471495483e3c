// Shared minima against the grids themselves.
#include "quant/search/grid_minima.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace kvant::quant {
namespace {

// The number of a half of a point among kHalves, from what its coordinates can be.
template <class Grid, size_t kBase>
int PatternOf(const int8_t* half, const int8_t (&numbers)[kBase]) {
  int pattern = 0;
  for (int j = Grid::kHalfDims - 1; j >= 0; --j) {
    int digit = 0;
    while (numbers[digit] != half[j]) ++digit;
    pattern = pattern * static_cast<int>(kBase) + digit;
  }
  return pattern;
}

// Each upper pattern has one run, whose numbers stand for its points' lower patterns, each once.
template <class Grid, size_t kBase>
void ExpectRunsOfAll(const Grid& grid, const int8_t (&numbers)[kBase]) {
  using Minima = GridMinima<Grid>;
  const Minima& minima = MinimaOf(grid);
  std::map<int, std::multiset<int>> expected;
  for (int p = 0; p < Grid::kCount; ++p) {
    const int lower = PatternOf<Grid>(grid.points[p], numbers);
    const int upper = PatternOf<Grid>(grid.points[p] + Grid::kHalfDims, numbers);
    expected[upper].insert(lower);
    EXPECT_EQ(minima.points[upper * Grid::kHalves + lower], p);
  }
  std::vector<std::multiset<int>> patterns;
  for (int lower = 0; lower < Grid::kHalves; ++lower) patterns.push_back({lower});
  ASSERT_LE(minima.pair_count, Minima::kPairsMax);
  for (int i = 0; i < minima.pair_count; ++i) {
    const auto& pair = minima.pairs[i];
    ASSERT_LT(pair.first, patterns.size());
    ASSERT_LT(pair.second, patterns.size());
    patterns.push_back(patterns[pair.first]);
    patterns.back().insert(patterns[pair.second].begin(), patterns[pair.second].end());
  }
  std::map<int, std::multiset<int>> found;
  for (int r = 0; r < minima.run_count; ++r) {
    const auto& run = minima.runs[r];
    ASSERT_LT(run.begin, run.end);
    auto& of_run = found[run.upper_part * Minima::kPatterns + run.lower_part];
    EXPECT_TRUE(of_run.empty());
    for (int at = run.begin; at < run.end; ++at) {
      const auto& of_number = patterns[minima.members[at]];
      of_run.insert(of_number.begin(), of_number.end());
    }
  }
  EXPECT_EQ(found, expected);
}

TEST(GridMinima, CoverEachPointOnce) {
  constexpr int8_t kIq1Numbers[] = {-8, 0, 8};
  ExpectRunsOfAll(kIq1Grid, kIq1Numbers);
  ExpectRunsOfAll(kIq2XxsGrid, kIq2Levels);
  ExpectRunsOfAll(kIq2XsGrid, kIq2Levels);
  ExpectRunsOfAll(kIq2SGrid, kIq2Levels);
  ExpectRunsOfAll(kIq3XxsGrid, kIq3XxsLevels);
  ExpectRunsOfAll(kIq3SGrid, kIq3SLevels);
}

// Minima would be of no use if there were as many as a search of all points takes.
TEST(GridMinima, AreFewerThanPoints) {
  auto minima = [](const auto& grid) {
    const auto& of_grid = MinimaOf(grid);
    const auto& last = of_grid.runs[of_grid.run_count - 1];
    return of_grid.pair_count + last.end;
  };
  EXPECT_LT(minima(kIq2SGrid), 1024 * 2 / 5);
  EXPECT_LT(minima(kIq2XsGrid), 512 * 2 / 3);
  EXPECT_LT(minima(kIq3SGrid), 512);
}

}  // namespace
}  // namespace kvant::quant
