// The cells in which the encoders of the trellis formats look for points: every index is in one
// leaf, with the numbers of the generator, and every box is the smallest around what lies in it.
#include "quant/search/trellis_cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <vector>

#include "quant/formats/trellis.h"

namespace kvant::quant {
namespace {

struct Case {
  const TrellisCells* cells;
  int dims;
  int first;
  int count;
  bool magnitudes;
};

std::vector<Case> Cases() {
  return {{&CellsOfIq1Kt(), 8, 0, 1 << 13, false},
          {&CellsOfIq2Kt(), 8, 0, 1 << 16, false},
          {&CellsOfIq3Kt(), 8, 0, 1 << 16, true},
          {&CellsOfIq4Kt(0), 4, 0, 1 << 15, false},
          {&CellsOfIq4Kt(1), 4, 1 << 15, 1 << 15, false}};
}

// The generator, step by step as the format defines it.
std::vector<int> NumbersOf(uint32_t index, int count) {
  std::vector<int> numbers;
  uint32_t state = 4096 + index;
  for (int k = 0; k < count; ++k) {
    state *= 0xcbac1fed;
    int sum = -126;
    for (int byte = 0; byte < 4; ++byte) sum += static_cast<int>(state >> (8 * byte) & 63);
    numbers.push_back(sum);
  }
  return numbers;
}

TEST(TrellisCells, HasEveryPointOnce) {
  for (const Case& c : Cases()) {
    ASSERT_EQ(c.cells->dims, c.dims);
    std::set<int> seen;
    for (int point = 0; point < c.count; ++point) {
      const int index = c.cells->indices[static_cast<size_t>(point)];
      EXPECT_TRUE(seen.insert(index).second);
      const std::vector<int> numbers = NumbersOf(static_cast<uint32_t>(index), c.dims);
      for (int k = 0; k < c.dims; ++k) {
        const int expected = numbers[static_cast<size_t>(k)];
        ASSERT_EQ(TrellisNumber(static_cast<uint32_t>(index), k), expected);
        ASSERT_EQ(c.cells->Number(point, k), c.magnitudes ? std::abs(expected) : expected);
      }
    }
    EXPECT_EQ(*seen.begin(), c.first);
    EXPECT_EQ(*seen.rbegin(), c.first + c.count - 1);
  }
}

// The bounds of coordinate k of box i, one of sixteen boxes that are stored together.
struct Box {
  int least;
  int greatest;

  Box(const uint8_t* sixteen, int i, int k) {
    constexpr int kPlaces[] = {0, 2, 1, 3};
    const uint8_t* at = sixteen + k / 4 * 128 + i * 4 + kPlaces[k % 4];
    least = at[0] - 128;
    greatest = at[64] - 128;
  }
};

// The points from `first` on fill the box.
void ExpectFilled(const TrellisCells& cells, const Box& box, int first, int count, int k) {
  int least = 1000;
  int greatest = -1000;
  for (int point = first; point < first + count; ++point) {
    least = std::min(least, cells.Number(point, k));
    greatest = std::max(greatest, cells.Number(point, k));
  }
  ASSERT_EQ(box.least, least);
  ASSERT_EQ(box.greatest, greatest);
}

TEST(TrellisCells, HasBoxesAroundItsPoints) {
  for (const Case& c : Cases()) {
    const TrellisCells& cells = *c.cells;
    ASSERT_EQ(cells.count * 256, c.count);
    ASSERT_EQ(cells.count % 16, 0);
    for (int k = 0; k < c.dims; ++k) {
      for (int cell = 0; cell < cells.count; ++cell) {
        ExpectFilled(cells, Box(cells.Cells(cell / 16), cell % 16, k), 256 * cell, 256, k);
      }
      for (int leaf = 0; leaf < cells.count * 16; ++leaf) {
        ExpectFilled(cells, Box(cells.Leaves(leaf / 16), leaf % 16, k), 16 * leaf, 16, k);
      }
    }
  }
}

TEST(TrellisCells, HasMeansOfItsPoints) {
  for (const Case& c : Cases()) {
    const TrellisCells& cells = *c.cells;
    ASSERT_EQ(cells.means.size(), static_cast<size_t>(cells.count * c.dims));
    for (int cell = 0; cell < cells.count; ++cell) {
      for (int k = 0; k < c.dims; ++k) {
        double sum = 0;
        for (int i = 0; i < 256; ++i) sum += cells.Number(256 * cell + i, k);
        const int mean = cells.Means(cell / 16)[k / 2 * 32 + cell % 16 * 2 + k % 2];
        ASSERT_LT(std::abs(mean - sum / 256), 1.0);
      }
    }
  }
}

// Leaves lie together: their points differ from the middle by much less than from zero.
TEST(TrellisCells, HasNearPointsInALeaf) {
  for (const Case& c : Cases()) {
    const TrellisCells& cells = *c.cells;
    double within = 0;
    double squares = 0;
    for (int point = 0; point < c.count; ++point) {
      for (int k = 0; k < c.dims; ++k) {
        const double number = cells.Number(point, k);
        const Box box(cells.Leaves(point / 256), point / 16 % 16, k);
        const double middle = (box.least + box.greatest) / 2.0;
        within += (number - middle) * (number - middle);
        squares += number * number;
      }
    }
    // In d dimensions 2^n leaves are 2^(n / d) times as narrow: n = 9 .. 12.
    EXPECT_LT(within, (c.dims == 4 ? 0.1 : 0.4) * squares);
  }
}

}  // namespace
}  // namespace kvant::quant
