// Lists of the points of cubes against the grids themselves.
#include "quant/grid_cubes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace kvant::quant {
namespace {

// A list names each point of its cube once, ascending, and is filled up with the last.
template <class Grid, size_t kBase>
void ExpectListsOfAll(const Grid& grid, const int8_t (&numbers)[kBase]) {
  using Cubes = GridCubes<Grid>;
  const Cubes& cubes = CubesOf(grid);
  std::set<std::vector<int>> points;
  for (const auto& point : grid.points) points.insert({point, point + Grid::kDims});
  for (int cube = 0; cube < Cubes::kCubes; ++cube) {
    std::vector<int> expected;
    for (int choice = 0; choice < 256; ++choice) {
      std::vector<int> point;
      for (int j = 0; j < Grid::kDims; ++j) {
        const int number = (cube >> (Cubes::kCubeBits * j)) % (1 << Cubes::kCubeBits) +
                           (choice >> (Cubes::kChoiceBits * j)) % Cubes::kChoices;
        if (number < static_cast<int>(kBase)) point.push_back(numbers[number]);
      }
      if (points.contains(point)) expected.push_back(choice);
    }
    const auto& list = cubes.lists[static_cast<size_t>(cube)];
    ASSERT_EQ(list.count, expected.size()) << cube;
    if (Cubes::kCountMax > 0) {
      ASSERT_LE(list.count, Cubes::kCountMax) << cube;
    }
    if (expected.empty()) continue;
    const uint32_t read = std::max<uint32_t>(list.count, Cubes::kCountMax);
    while (expected.size() < read) expected.push_back(expected.back());
    const uint8_t* choices = cubes.Choices(list);
    EXPECT_EQ(std::vector<int>(choices, choices + read), expected) << cube;
  }
}

TEST(GridCubes, ListThePointsOfEachCube) {
  constexpr int8_t kIq1Numbers[] = {-8, 0, 8};
  ExpectListsOfAll(kIq1Grid, kIq1Numbers);
  ExpectListsOfAll(kIq2SGrid, kIq2Levels);
  ExpectListsOfAll(kIq3SGrid, kIq3SLevels);
}

}  // namespace
}  // namespace kvant::quant
