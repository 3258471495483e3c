// Softmax sums, divergences, ranks and alternatives against brute force in long double.
#include "engine/evaluate/distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace kvant::evaluate {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(size_t count, float spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(3.0f, spread);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

long double LogSum(const std::vector<float>& logits) {
  const long double largest = *std::max_element(logits.begin(), logits.end());
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

long double Kl(const std::vector<float>& base, const std::vector<float>& other) {
  const long double base_sum = LogSum(base);
  const long double other_sum = LogSum(other);
  long double kl = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    const long double log_p = base[i] - base_sum;
    kl += std::exp(log_p) * (log_p - (other[i] - other_sum));
  }
  return kl;
}

TEST(Distribution, MatchesLongDouble) {
  for (const size_t count :
       {size_t{1}, size_t{2}, size_t{15}, size_t{16}, size_t{33}, size_t{5000}}) {
    for (const float spread : {0.0f, 1.0f, 30.0f}) {
      const auto base = RandomLogits(count, spread, 1);
      const auto other = RandomLogits(count, spread, 2);
      const Distribution d = Normalize(base);
      EXPECT_NEAR(d.log_sum, static_cast<double>(LogSum(base)), 3e-7) << count << " " << spread;
      EXPECT_EQ(base[static_cast<size_t>(d.top)], *std::max_element(base.begin(), base.end()));
      const double kl = static_cast<double>(Kl(base, other));
      EXPECT_NEAR(KlDivergence(d, Normalize(other)), kl, 1e-6 + 1e-5 * kl);
      EXPECT_EQ(KlDivergence(d, Normalize(base)), 0.0);
    }
  }
}

TEST(Distribution, SmallDivergencesKeepTheirDigits) {
  const auto base = RandomLogits(30000, 2.0f, 3);
  auto other = base;
  std::mt19937 random(4);
  for (float& logit : other) logit += std::normal_distribution<float>(0.0f, 1e-3f)(random);
  const double kl = static_cast<double>(Kl(base, other));  // about 5e-7
  EXPECT_NEAR(KlDivergence(Normalize(base), Normalize(other)), kl, 0.01 * kl);
}

TEST(Distribution, ImpossibleTokensAndNaN) {
  const std::vector<float> masked = {1.0f, -kInfinity, 2.0f};
  const std::vector<float> open = {1.0f, 0.0f, 2.0f};
  const Distribution d = Normalize(masked);
  EXPECT_NEAR(d.log_sum, std::log(std::exp(1.0) + std::exp(2.0)), 1e-7);
  EXPECT_EQ(d.LogProb(1), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(KlDivergence(d, d), 0.0);
  EXPECT_GT(KlDivergence(d, Normalize(open)), 0.0);
  EXPECT_EQ(KlDivergence(Normalize(open), d), std::numeric_limits<double>::infinity());
  for (size_t at = 0; at < 40; ++at) {
    std::vector<float> logits = RandomLogits(40, 1.0f, 5);
    logits[at] = std::nanf("");
    EXPECT_TRUE(std::isnan(Normalize(logits).log_sum)) << at;
    logits[at] = kInfinity;
    EXPECT_TRUE(std::isnan(Normalize(logits).log_sum)) << at;
  }
}

TEST(Distribution, TheFloorLeavesUnlikelyTokensOut) {
  const std::vector<float> base = {0.0f, -20.0f};
  const std::vector<float> other = {0.0f, -1e9f};
  EXPECT_GT(KlDivergence(Normalize(base), Normalize(other)), 1.0);
  EXPECT_NEAR(KlDivergence(Normalize(base), Normalize(other), -16.0), 0.0, 1e-8);
}

TEST(Distribution, RanksAndAlternatives) {
  const std::vector<float> logits = {1.0f, 5.0f, 3.0f, 5.0f, -2.0f};
  const Distribution d = Normalize(logits);
  const TokenId order[] = {1, 3, 2, 0, 4};
  const auto top = TopTokens(d, 9);
  ASSERT_EQ(top.size(), 5u);
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(top[static_cast<size_t>(i)].id, order[i]);
    EXPECT_EQ(top[static_cast<size_t>(i)].log_prob, d.LogProb(order[i]));
    EXPECT_EQ(Rank(d, order[i]), i + 1);
  }
  EXPECT_EQ(TopTokens(d, 2).size(), 2u);
  EXPECT_TRUE(TopTokens(d, 0).empty());
}

}  // namespace
}  // namespace kvant::evaluate
