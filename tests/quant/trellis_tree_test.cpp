// The trees in which the encoders of the trellis formats look for points: every index is in one
// leaf, with the numbers of the generator, and every box holds what lies below it.
#include "quant/trellis_tree.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "quant/trellis.h"

namespace kvant::quant {
namespace {

struct Case {
  const TrellisTree* tree;
  int dims;
  int first;
  int count;
  bool magnitudes;
};

std::vector<Case> Cases() {
  return {{&TreeOfIq1Kt(), 8, 0, 1 << 13, false},
          {&TreeOfIq2Kt(), 8, 0, 1 << 16, false},
          {&TreeOfIq3Kt(), 8, 0, 1 << 16, true},
          {&TreeOfIq4Kt(0), 4, 0, 1 << 15, false},
          {&TreeOfIq4Kt(1), 4, 1 << 15, 1 << 15, false}};
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

TEST(TrellisTree, HasEveryPointOnce) {
  for (const Case& c : Cases()) {
    ASSERT_EQ(c.tree->dims, c.dims);
    std::set<int> seen;
    for (int point = 0; point < c.count; ++point) {
      const int index = c.tree->indices[static_cast<size_t>(point)];
      EXPECT_TRUE(seen.insert(index).second);
      const std::vector<int> numbers = NumbersOf(static_cast<uint32_t>(index), c.dims);
      for (int k = 0; k < c.dims; ++k) {
        const int expected = numbers[static_cast<size_t>(k)];
        ASSERT_EQ(TrellisNumber(static_cast<uint32_t>(index), k), expected);
        ASSERT_EQ(c.tree->Points(point / 16)[k * 16 + point % 16],
                  c.magnitudes ? std::abs(expected) : expected);
      }
    }
    EXPECT_EQ(*seen.begin(), c.first);
    EXPECT_EQ(*seen.rbegin(), c.first + c.count - 1);
  }
}

TEST(TrellisTree, HasBoxesAroundItsPoints) {
  for (const Case& c : Cases()) {
    const TrellisTree& tree = *c.tree;
    for (int point = 0; point < c.count; ++point) {
      const int leaf = point / 16;
      const int of_leaf = leaf % 16;
      const int middle = leaf / 16 % 16;
      const int top = leaf / 256;
      const int nodes[] = {0, tree.Child(0, 0, top), tree.Child(1, tree.Child(0, 0, top), middle)};
      const int children[] = {top, middle, of_leaf};
      ASSERT_EQ(tree.Leaf(nodes[2], of_leaf), leaf);
      for (int depth = 0; depth < 3; ++depth) {
        for (int k = 0; k < c.dims; ++k) {
          const float x = tree.Points(leaf)[k * 16 + point % 16];
          const float* box = tree.Boxes(nodes[depth]) + k * 32 + children[depth];
          ASSERT_LE(box[0], x);
          ASSERT_GE(box[16], x);
        }
      }
    }
    for (int c_missing = tree.top; c_missing < 16; ++c_missing) {
      EXPECT_GT(tree.Boxes(0)[c_missing], 1e30f);
    }
  }
}

}  // namespace
}  // namespace kvant::quant
