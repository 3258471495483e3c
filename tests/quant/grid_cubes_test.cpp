// Lists of the points of cubes against the grid itself.
#include "quant/search/grid_cubes.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "quant/formats/iq_grids.h"

namespace kvant::quant {
namespace {

// A list names each point of its cube once, ascending, and is filled up with the last.
TEST(GridCubes, ListThePointsOfEachCube) {
  constexpr int kNumbers[] = {-8, 0, 8};
  const Iq1Cubes& cubes = CubesOfIq1();
  std::set<std::vector<int>> points;
  for (const auto& point : kIq1Grid.points) points.insert({point, point + 8});
  for (int cube = 0; cube < Iq1Cubes::kCubes; ++cube) {
    std::vector<int> expected;
    for (int choice = 0; choice < 256; ++choice) {
      std::vector<int> point;
      for (int j = 0; j < 8; ++j) point.push_back(kNumbers[(cube >> j) % 2 + (choice >> j) % 2]);
      if (points.contains(point)) expected.push_back(choice);
    }
    ASSERT_FALSE(expected.empty()) << cube;
    ASSERT_LE(expected.size(), Iq1Cubes::kCountMax) << cube;
    while (expected.size() < Iq1Cubes::kBytes) expected.push_back(expected.back());
    const uint8_t* choices = cubes.choices[cube];
    EXPECT_EQ(std::vector<int>(choices, choices + Iq1Cubes::kBytes), expected) << cube;
  }
}

}  // namespace
}  // namespace kvant::quant
