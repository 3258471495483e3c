// The best scores against a sort.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "engine/graph/attention/choice.h"

namespace kvant::test {
namespace {

std::vector<int32_t> Chosen(const std::vector<float>& scores, int64_t most) {
  std::vector<uint32_t> order(scores.size());
  std::vector<int32_t> choice(static_cast<size_t>(most) + 1, -7);
  graph::ChooseBest(scores, most, order, choice.data());
  const auto units = graph::UnitsOf(choice.data());
  return {units.begin(), units.end()};
}

std::vector<int32_t> Sorted(const std::vector<float>& scores, int64_t most) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > -std::numeric_limits<float>::infinity()) {
      order.push_back(static_cast<int32_t>(i));
    }
  }
  std::ranges::stable_sort(order, [&scores](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  order.resize(std::min(order.size(), static_cast<size_t>(most)));
  std::ranges::sort(order);
  return order;
}

TEST(Choice, IsThatOfASort) {
  std::mt19937 random(2);
  for (int i = 0; i < 3000; ++i) {
    std::vector<float> scores(1 + random() % 60);
    // Few different numbers, so that many are equal.
    const uint32_t numbers = 1 + random() % 12;
    for (float& score : scores) {
      score = (static_cast<float>(random() % numbers) - 4.0f) * 0.37f;
      if (random() % 9 == 0) score = -std::numeric_limits<float>::infinity();
      if (random() % 40 == 0) score = std::numeric_limits<float>::infinity();
      if (random() % 20 == 0) score = -0.0f;
    }
    const auto most = static_cast<int64_t>(1 + random() % 40);
    ASSERT_EQ(Chosen(scores, most), Sorted(scores, most)) << i;
  }
}

TEST(Choice, LeavesNanOut) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Chosen({1.0f, nan, -2.0f, -nan, 3.0f}, 4), (std::vector<int32_t>{0, 2, 4}));
  EXPECT_EQ(Chosen({nan, nan}, 1), std::vector<int32_t>());
  EXPECT_EQ(Chosen({nan, -1.0f, -3.0f}, 1), std::vector<int32_t>{1});
}

}  // namespace
}  // namespace kvant::test
