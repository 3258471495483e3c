// The sampler against a plain reference in double, by the definition of each filter, and by a
// chi-square test of many draws with a fixed seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "kvant/random.h"
#include "kvant/sampler.h"

namespace kvant {
namespace {

using LogitRow = std::vector<float>;

LogitRow RandomLogits(size_t count, uint64_t seed, float spread = 4.0f) {
  Xoshiro256 random(seed);
  LogitRow logits(count);
  for (float& logit : logits) {
    float sum = 0;  // roughly normal
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(random.Next() >> 40) * 0x1p-24f - 0.5f;
    logit = sum * spread;
  }
  return logits;
}

SamplingOptions NoFilters() {
  SamplingOptions options;
  options.temperature = 1.0f;
  options.top_k = 0;
  options.top_p = 1.0f;
  options.min_p = 0.0f;
  options.seed = 42;
  return options;
}

// Adds the biases and applies the penalties for the tokens accepted so far.
void Penalize(LogitRow& logits, const SamplingOptions& options,
              const std::vector<TokenId>& accepted) {
  for (const LogitBias& entry : options.logit_bias) {
    logits[static_cast<size_t>(entry.token)] += entry.bias;
  }
  std::map<TokenId, int> counts;
  const size_t window =
      options.repeat_last_n < 0 ? accepted.size() : static_cast<size_t>(options.repeat_last_n);
  for (size_t i = accepted.size() > window ? accepted.size() - window : 0; i < accepted.size();
       ++i) {
    ++counts[accepted[i]];
  }
  for (const auto& [id, count] : counts) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit <= 0 ? logit * options.repeat_penalty : logit / options.repeat_penalty;
    logit -= static_cast<float>(count) * options.frequency_penalty + options.presence_penalty;
  }
}

// The distribution that a chain defines, by token id, straight from the definitions.
std::map<TokenId, double> Reference(LogitRow logits, const SamplingOptions& options,
                                    const std::vector<TokenId>& accepted = {}) {
  Penalize(logits, options, accepted);
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit_of = [&](TokenId id) { return double{logits[static_cast<size_t>(id)]}; };
  std::stable_sort(ids.begin(), ids.end(),
                   [&](TokenId a, TokenId b) { return logit_of(a) > logit_of(b); });
  if (options.top_k > 0) ids.resize(std::min(ids.size(), static_cast<size_t>(options.top_k)));
  const auto softmax = [&](double temperature) {
    std::map<TokenId, double> p;
    double sum = 0;
    for (const TokenId id : ids) {
      sum += p[id] = std::exp((logit_of(id) - logit_of(ids[0])) / temperature);
    }
    for (auto& entry : p) entry.second /= sum;
    return p;
  };
  const size_t keep_min = static_cast<size_t>(std::max(options.min_keep, 1));
  if (options.typical < 1) {
    auto p = softmax(1);
    double entropy = 0;
    for (const auto& [id, probability] : p) entropy -= probability * std::log(probability);
    std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) {
      return std::fabs(-std::log(p[a]) - entropy) < std::fabs(-std::log(p[b]) - entropy);
    });
    double sum = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      sum += p[ids[i]];
      if (sum > double{options.typical} && i + 1 >= keep_min) {
        ids.resize(i + 1);
        break;
      }
    }
    std::stable_sort(ids.begin(), ids.end(),
                     [&](TokenId a, TokenId b) { return logit_of(a) > logit_of(b); });
  }
  if (options.top_p < 1) {
    auto p = softmax(1);
    double sum = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      sum += p[ids[i]];
      if (sum >= double{options.top_p} && i + 1 >= keep_min) {
        ids.resize(i + 1);
        break;
      }
    }
  }
  if (options.min_p > 0) {
    auto p = softmax(1);
    size_t count = 0;
    while (count < ids.size() &&
           (count < keep_min || p[ids[count]] >= double{options.min_p} * p[ids[0]])) {
      ++count;
    }
    ids.resize(count);
  }
  return softmax(double{options.temperature});
}

// A sampler tells the distribution of its last draw, but for probabilities below 2^-40, which count
// as none.
void ExpectChances(Sampler& sampler, const std::map<TokenId, double>& expected, TokenId drawn) {
  const auto chances = sampler.Chances(expected.size() + 1);
  const auto likely = std::count_if(expected.begin(), expected.end(),
                                    [](const auto& entry) { return entry.second > 0x1p-39; });
  EXPECT_GE(std::ssize(chances), likely);
  EXPECT_LE(chances.size(), expected.size());
  double sum = 0;
  for (size_t i = 0; i < chances.size(); ++i) {
    ASSERT_TRUE(expected.contains(chances[i].id));
    EXPECT_NEAR(chances[i].probability, expected.at(chances[i].id), 1e-6);
    EXPECT_EQ(sampler.ChanceOf(chances[i].id), chances[i].probability);
    if (i > 0) {
      EXPECT_LE(chances[i].probability, chances[i - 1].probability);
    }
    sum += chances[i].probability;
  }
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_GT(sampler.ChanceOf(drawn), 0);
  for (TokenId id = 0; id < sampler.vocab_size(); ++id) {
    if (!expected.contains(id)) {
      EXPECT_EQ(sampler.ChanceOf(id), 0);
    }
  }
  ASSERT_EQ(sampler.Chances(1).size(), 1u);
  EXPECT_EQ(sampler.Chances(1)[0].id, chances[0].id);
}

// Draws many tokens; every one must have a probability, and the counts must fit by chi-square at
// far beyond 5 standard deviations.
void ExpectDistribution(const LogitRow& logits, const SamplingOptions& options,
                        const std::vector<TokenId>& accepted = {}, int draws = 8000) {
  auto sampler = Sampler::Create(options, static_cast<int32_t>(logits.size()));
  ASSERT_TRUE(sampler.ok()) << sampler.error().message;
  for (const TokenId id : accepted) sampler->Accept(id);
  const auto expected = Reference(logits, options, accepted);
  EXPECT_TRUE(sampler->Chances(1).empty());
  std::map<TokenId, int> counts;
  TokenId last = 0;
  for (int i = 0; i < draws; ++i) {
    const auto id = sampler->Sample(logits);
    ASSERT_TRUE(id.ok()) << id.error().message;
    ASSERT_TRUE(expected.contains(*id)) << "token " << *id << " was filtered out";
    ++counts[*id];
    last = *id;
  }
  ExpectChances(*sampler, expected, last);
  double chi_square = 0;
  int cells = 0;
  double rest_expected = 0;
  double rest_count = 0;
  for (const auto& [id, probability] : expected) {
    const double mean = probability * draws;
    if (mean < 8) {  // rare tokens share a cell
      rest_expected += mean;
      rest_count += counts[id];
      continue;
    }
    chi_square += (counts[id] - mean) * (counts[id] - mean) / mean;
    ++cells;
  }
  if (rest_expected >= 8) {
    chi_square += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
    ++cells;
  }
  const double freedom = std::max(cells - 1, 1);
  EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom) + 5) << cells << " cells";
}

TEST(Sampler, TellsNoChancesWhereNothingWasDrawn) {
  auto sampler = Sampler::Create(NoFilters(), 3);
  ASSERT_TRUE(sampler.ok());
  ASSERT_TRUE(sampler->Sample(LogitRow{0, 1, 2}).ok());
  EXPECT_EQ(sampler->Chances(9).size(), 3u);
  EXPECT_EQ(Sampler(*sampler).Chances(9).size(), 3u);  // of a copy, too
  EXPECT_FALSE(sampler->Sample(LogitRow(3, -std::numeric_limits<float>::infinity())).ok());
  EXPECT_TRUE(sampler->Chances(9).empty());
  EXPECT_EQ(sampler->ChanceOf(2), 0);
}

TEST(Sampler, PlainSoftmax) { ExpectDistribution(RandomLogits(50, 1), NoFilters()); }

TEST(Sampler, Temperature) {
  for (const float temperature : {0.3f, 0.8f, 2.5f}) {
    SamplingOptions options = NoFilters();
    options.temperature = temperature;
    ExpectDistribution(RandomLogits(60, 2), options);
  }
}

TEST(Sampler, EachFilterAlone) {
  const LogitRow logits = RandomLogits(200, 3);
  for (const int32_t k : {1, 2, 5, 40, 199, 200, 500}) {
    SamplingOptions options = NoFilters();
    options.top_k = k;
    ExpectDistribution(logits, options, {}, 2000);
  }
  for (const float p : {0.0f, 0.1f, 0.5f, 0.9f, 0.999f}) {
    SamplingOptions options = NoFilters();
    options.top_p = p;
    ExpectDistribution(logits, options, {}, 2000);
  }
  for (const float p : {0.01f, 0.05f, 0.5f, 1.0f}) {
    SamplingOptions options = NoFilters();
    options.min_p = p;
    ExpectDistribution(logits, options, {}, 2000);
  }
  for (const float p : {0.0f, 0.2f, 0.5f, 0.95f}) {
    SamplingOptions options = NoFilters();
    options.typical = p;
    ExpectDistribution(logits, options, {}, 2000);
  }
}

// Random chains, the support compared exactly: with a huge temperature every kept token is likely.
TEST(Sampler, SupportOfRandomChainsMatchesReference) {
  Xoshiro256 random(77);
  const auto pick = [&](auto... values) {
    const float all[] = {static_cast<float>(values)...};
    return all[random.Below(sizeof...(values))];
  };
  for (int round = 0; round < 60; ++round) {
    SamplingOptions options = NoFilters();
    options.temperature = 1000.0f;
    options.top_k = static_cast<int32_t>(pick(0, 3, 10, 40));
    options.top_p = pick(1.0, 0.99, 0.9, 0.6);
    options.min_p = pick(0.0, 0.02, 0.05, 0.2);
    options.typical = pick(1.0, 0.9, 0.5);
    options.min_keep = static_cast<int32_t>(pick(0, 1, 4));
    const LogitRow logits = RandomLogits(120, 1000 + static_cast<uint64_t>(round), 8.0f);
    const auto expected = Reference(logits, options);
    auto sampler = Sampler::Create(options, 120);
    ASSERT_TRUE(sampler.ok());
    std::set<TokenId> seen;
    for (int i = 0; i < 1500; ++i) seen.insert(*sampler->Sample(logits));
    std::set<TokenId> support;
    for (const auto& entry : expected) support.insert(entry.first);
    EXPECT_EQ(seen, support) << "round " << round;
  }
}

TEST(Sampler, DefaultsAreThoseOfLlamaCpp) {
  SamplingOptions options;
  EXPECT_EQ(options.temperature, 0.8f);
  EXPECT_EQ(options.top_k, 40);
  EXPECT_EQ(options.top_p, 0.95f);
  EXPECT_EQ(options.min_p, 0.05f);
  EXPECT_EQ(options.typical, 1.0f);
  EXPECT_EQ(options.repeat_penalty, 1.0f);
  EXPECT_EQ(options.repeat_last_n, 64);
  options.seed = 9;
  ExpectDistribution(RandomLogits(1000, 4, 12.0f), options);
}

TEST(Sampler, PenaltiesFollowTheirFormula) {
  const LogitRow logits = RandomLogits(20, 5, 3.0f);
  const std::vector<TokenId> accepted = {1, 2, 2, 3, 3, 3, 9, 1, 2};
  for (const int32_t window : {0, 1, 4, 64, -1}) {
    SamplingOptions options = NoFilters();
    options.repeat_last_n = window;
    options.repeat_penalty = 1.7f;
    options.presence_penalty = 0.4f;
    options.frequency_penalty = 0.3f;
    ExpectDistribution(logits, options, accepted);
  }
}

// Greedy choice shows the exact adjusted logits: two tokens tie at the formula's border.
TEST(Sampler, PenaltyWindowForgetsTheOldest) {
  SamplingOptions options = NoFilters();
  options.temperature = 0;
  options.presence_penalty = 5;
  options.repeat_last_n = 2;
  auto sampler = Sampler::Create(options, 4);
  ASSERT_TRUE(sampler.ok());
  const LogitRow logits = {4, 3, 2, 1};
  std::vector<TokenId> ids;
  for (int i = 0; i < 7; ++i) {
    ids.push_back(*sampler->Sample(logits));
    sampler->Accept(ids.back());
  }
  EXPECT_EQ(ids, (std::vector<TokenId>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(Sampler, LogitBiasShiftsForcesAndForbids) {
  SamplingOptions options = NoFilters();
  options.logit_bias = {{3, 2.0f}, {5, -1.5f}, {7, -INFINITY}};
  ExpectDistribution(RandomLogits(30, 6), options);
  options.logit_bias = {{11, INFINITY}};
  auto sampler = Sampler::Create(options, 30);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(*sampler->Sample(RandomLogits(30, 6)), 11);
}

TEST(Sampler, ForbiddenTokensNeverAppear) {
  auto sampler = Sampler::Create(NoFilters(), 3);
  sampler->Forbid(0);
  sampler->Forbid(2);
  const LogitRow logits = {100, 0, 100};
  for (int i = 0; i < 100; ++i) EXPECT_EQ(*sampler->Sample(logits), 1);
}

TEST(Sampler, GreedyTakesTheLikeliestAndTheLowerIdOfTies) {
  for (const float temperature : {0.0f, -1.0f}) {
    SamplingOptions options;
    options.temperature = temperature;
    auto sampler = Sampler::Create(options, 5);
    ASSERT_TRUE(sampler.ok());
    EXPECT_EQ(*sampler->Sample(LogitRow{1, 7, 3, 7, 2}), 1);
  }
}

TEST(Sampler, TiesGoToTheLowerId) {
  SamplingOptions options = NoFilters();
  options.top_k = 3;
  options.temperature = 1000;
  auto sampler = Sampler::Create(options, 400);
  const LogitRow logits(400, 0.5f);
  std::set<TokenId> seen;
  for (int i = 0; i < 500; ++i) seen.insert(*sampler->Sample(logits));
  EXPECT_EQ(seen, (std::set<TokenId>{0, 1, 2}));
}

TEST(Sampler, NonFiniteLogits) {
  SamplingOptions options = NoFilters();
  auto sampler = Sampler::Create(options, 4);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(*sampler->Sample(LogitRow{NAN, -INFINITY, 0, -NAN}), 2);
    EXPECT_EQ(*sampler->Sample(LogitRow{5, INFINITY, 80, NAN}), 1);
  }
  const auto none = sampler->Sample(LogitRow{NAN, -INFINITY, -INFINITY, NAN});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("finite"), std::string::npos);
  EXPECT_FALSE(sampler->Sample(LogitRow{1, 2, 3}).ok());
}

TEST(Sampler, ExtremeTemperaturesStayDefined) {
  for (const float temperature : {1e-38f, 1e-45f, 3e38f}) {
    SamplingOptions options = NoFilters();
    options.temperature = temperature;
    auto sampler = Sampler::Create(options, 3);
    for (int i = 0; i < 20; ++i) {
      const TokenId id = *sampler->Sample(LogitRow{-3e38f, 1, 3e38f});
      if (temperature < 1) {
        EXPECT_EQ(id, 2);
      }
    }
  }
}

TEST(Sampler, SameSeedSameTokensOtherSeedOthers) {
  SamplingOptions options;
  std::vector<TokenId> first;
  for (const uint64_t seed : {7u, 7u, 8u}) {
    options.seed = seed;
    auto sampler = Sampler::Create(options, 500);
    EXPECT_EQ(sampler->seed(), seed);
    std::vector<TokenId> ids;
    for (uint64_t i = 0; i < 100; ++i) ids.push_back(*sampler->Sample(RandomLogits(500, i)));
    if (first.empty()) first = ids;
    EXPECT_EQ(ids == first, seed == 7);
  }
}

// Pinned: a change of these tokens breaks everybody's seeds.
TEST(Sampler, TokensOfASeedArePinned) {
  SamplingOptions options;
  options.seed = 1234;
  auto sampler = Sampler::Create(options, 1000);
  std::vector<TokenId> ids;
  for (uint64_t i = 0; i < 12; ++i) ids.push_back(*sampler->Sample(RandomLogits(1000, i, 3.0f)));
  EXPECT_EQ(ids,
            (std::vector<TokenId>{471, 652, 953, 638, 802, 568, 776, 321, 146, 441, 174, 117}));
}

TEST(Sampler, AbsentSeedIsDrawnAndReported) {
  SamplingOptions options;
  options.seed.reset();
  auto a = Sampler::Create(options, 10);
  auto b = Sampler::Create(options, 10);
  EXPECT_NE(a->seed(), b->seed());
}

TEST(Sampler, ImpossibleOptionsAreNamed) {
  const auto message = [](auto change) {
    SamplingOptions options;
    change(options);
    const auto sampler = Sampler::Create(options, 100);
    EXPECT_FALSE(sampler.ok());
    return sampler.ok() ? std::string() : sampler.error().message;
  };
  using O = SamplingOptions;
  EXPECT_EQ(message([](O& o) { o.top_p = 2; }), "top-p: expected 0 to 1, found 2");
  EXPECT_TRUE(message([](O& o) { o.temperature = NAN; }).starts_with("temperature:"));
  EXPECT_TRUE(message([](O& o) { o.min_p = -0.1f; }).starts_with("min-p:"));
  EXPECT_TRUE(message([](O& o) { o.typical = 1.5f; }).starts_with("typical:"));
  EXPECT_TRUE(message([](O& o) { o.repeat_penalty = 0; }).starts_with("repeat-penalty:"));
  EXPECT_TRUE(message([](O& o) { o.repeat_last_n = -2; }).starts_with("repeat-last-n:"));
  EXPECT_TRUE(message([](O& o) { o.presence_penalty = INFINITY; }).starts_with("presence-"));
  EXPECT_TRUE(message([](O& o) { o.frequency_penalty = NAN; }).starts_with("frequency-"));
  EXPECT_TRUE(message([](O& o) { o.logit_bias = {{100, 1}}; }).starts_with("logit-bias:"));
  EXPECT_TRUE(message([](O& o) { o.logit_bias = {{-1, 1}}; }).starts_with("logit-bias:"));
  EXPECT_TRUE(message([](O& o) { o.logit_bias = {{1, NAN}}; }).starts_with("logit-bias:"));
}

// A large vocabulary, where top-k must find the same tokens without sorting it.
TEST(Sampler, TopKOfALargeVocabulary) {
  const LogitRow logits = RandomLogits(128256, 12, 10.0f);
  SamplingOptions options = NoFilters();
  options.top_k = 40;
  options.temperature = 1000;
  const auto expected = Reference(logits, options);
  auto sampler = Sampler::Create(options, 128256);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(expected.contains(*sampler->Sample(logits)));
}

}  // namespace
}  // namespace kvant
