// The choice of formats within a number of bytes against brute force, and the limits of it.
#include "engine/quantize/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace kvant::quantize {
namespace {

using Items = std::vector<std::vector<BudgetCandidate>>;

// Errors fall as bytes grow, more or less.
Items RandomItems(std::mt19937& random, size_t count, size_t candidates) {
  Items items;
  for (size_t i = 0; i < count; ++i) {
    auto& item = items.emplace_back();
    const double size = std::uniform_real_distribution<double>(1, 20)(random);
    const double weight = std::uniform_real_distribution<double>(0.01, 1)(random);
    for (size_t c = 0; c < candidates; ++c) {
      const double bits = std::uniform_real_distribution<double>(1, 9)(random);
      const double noise = std::uniform_real_distribution<double>(0.7, 1.4)(random);
      item.push_back(
          {static_cast<uint64_t>(bits * size * 8), weight * noise * std::pow(4.0, -bits)});
    }
  }
  return items;
}

struct Total {
  uint64_t bytes = 0;
  double error = 0;
};
Total TotalOf(const Items& items, const std::vector<size_t>& chosen) {
  Total total;
  for (size_t i = 0; i < items.size(); ++i) {
    total.bytes += items[i][chosen[i]].bytes;
    total.error += items[i][chosen[i]].error;
  }
  return total;
}

// The least error of all choices; infinity where none fits.
double LeastError(const Items& items, size_t at, uint64_t left) {
  if (at == items.size()) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const BudgetCandidate& candidate : items[at]) {
    if (candidate.bytes > left) continue;
    least = std::min(least, candidate.error + LeastError(items, at + 1, left - candidate.bytes));
  }
  return least;
}

TEST(Budget, IsNextToTheBestOfAllChoices) {
  std::mt19937 random(5);
  int best = 0;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    const Items items = RandomItems(random, 6, 5);
    const uint64_t low = LeastBytes(items);
    const uint64_t high = MostBytes(items);
    const uint64_t limit = std::uniform_int_distribution<uint64_t>(low, high)(random);
    const auto chosen = ChooseWithin(items, limit);
    ASSERT_TRUE(chosen.ok());
    const Total total = TotalOf(items, *chosen);
    EXPECT_LE(total.bytes, limit);
    const double least = LeastError(items, 0, limit);
    EXPECT_GE(total.error, least * (1 - 1e-12));
    EXPECT_LE(total.error, least * 1.0001);
    best += total.error <= least * (1 + 1e-12) ? 1 : 0;
  }
  EXPECT_GE(best, kRounds * 99 / 100);
}

TEST(Budget, KnowsItsLimits) {
  std::mt19937 random(6);
  const Items items = RandomItems(random, 30, 8);
  uint64_t least = 0;
  for (const auto& item : items) {
    uint64_t smallest = item[0].bytes;
    for (const auto& candidate : item) smallest = std::min(smallest, candidate.bytes);
    least += smallest;
  }
  EXPECT_EQ(LeastBytes(items), least);
  const auto too_few = ChooseWithin(items, least - 1);
  ASSERT_FALSE(too_few.ok());
  EXPECT_EQ(too_few.error().code, ErrorCode::kInvalid);
  ASSERT_TRUE(ChooseWithin(items, least).ok());
  EXPECT_EQ(TotalOf(items, *ChooseWithin(items, least)).bytes, least);
  // With bytes enough every item has its least error.
  const auto all = ChooseWithin(items, MostBytes(items));
  ASSERT_TRUE(all.ok());
  for (size_t i = 0; i < items.size(); ++i) {
    for (const auto& candidate : items[i]) EXPECT_LE(items[i][(*all)[i]].error, candidate.error);
  }
}

TEST(Budget, MoreBytesNeverLeaveMoreErrorThanTheHullDoes) {
  std::mt19937 random(7);
  const Items items = RandomItems(random, 40, 10);
  double before = std::numeric_limits<double>::infinity();
  const uint64_t low = LeastBytes(items);
  const uint64_t high = MostBytes(items);
  for (int step = 0; step <= 20; ++step) {
    const uint64_t limit = low + (high - low) * static_cast<uint64_t>(step) / 20;
    const auto chosen = ChooseWithin(items, limit);
    ASSERT_TRUE(chosen.ok());
    const double error = TotalOf(items, *chosen).error;
    EXPECT_LE(error, before);
    before = error;
  }
}

TEST(Budget, TellsHowFarItIsAndStopsWhenAsked) {
  std::mt19937 random(8);
  const Items items = RandomItems(random, 40, 10);
  const uint64_t limit = (LeastBytes(items) + MostBytes(items)) / 2;
  std::vector<double> parts;
  const auto chosen = ChooseWithin(items, limit, [&](double done) -> Status {
    parts.push_back(done);
    return {};
  });
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, *ChooseWithin(items, limit));
  EXPECT_TRUE(std::is_sorted(parts.begin(), parts.end()));
  EXPECT_GE(parts.front(), 0);
  EXPECT_LE(parts.back(), 1);
  // At least once for each item.
  ASSERT_GE(parts.size(), items.size());
  for (size_t stop = 0; stop < parts.size(); ++stop) {
    size_t calls = 0;
    const auto stopped = ChooseWithin(items, limit, [&](double) -> Status {
      if (calls++ < stop) return {};
      return MakeError(ErrorCode::kCancelled, "enough");
    });
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().message, "enough");
    EXPECT_EQ(calls, stop + 1);
  }
}

// Errors that are not finite make no choice worse than it has to be.
TEST(Budget, EndsWithErrorsThatAreNotFinite) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  std::mt19937 random(10);
  for (const bool whole_item : {false, true}) {
    Items items = RandomItems(random, 12, 6);
    for (auto& candidate : items[5]) candidate.error = kInfinite;
    if (!whole_item) items[5][3].error = 0.1;
    const uint64_t limit = (LeastBytes(items) + MostBytes(items)) / 2 + items[5][3].bytes;
    const auto chosen = ChooseWithin(items, limit);
    ASSERT_TRUE(chosen.ok());
    EXPECT_LE(TotalOf(items, *chosen).bytes, limit);
    EXPECT_TRUE(whole_item || (*chosen)[5] == 3u);
  }
}

// The order of candidates counts only among equals.
TEST(Budget, ChoosesTheSameOfShuffledCandidates) {
  std::mt19937 random(9);
  for (int round = 0; round < 20; ++round) {
    const Items items = RandomItems(random, 25, 9);
    Items shuffled = items;
    for (auto& item : shuffled) std::shuffle(item.begin(), item.end(), random);
    const uint64_t limit = (2 * LeastBytes(items) + MostBytes(items)) / 3;
    const auto chosen = ChooseWithin(items, limit);
    const auto other = ChooseWithin(shuffled, limit);
    ASSERT_TRUE(chosen.ok() && other.ok());
    for (size_t i = 0; i < items.size(); ++i) {
      EXPECT_EQ(items[i][(*chosen)[i]].bytes, shuffled[i][(*other)[i]].bytes);
    }
  }
}

}  // namespace
}  // namespace kvant::quantize
