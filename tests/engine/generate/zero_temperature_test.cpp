// A temperature of 0 takes the likeliest of the candidates that the samplers in front of it leave,
// which is the limit of small temperatures. Random chains are compared with loops over all
// candidates in double, which skip nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/engine/generate/sampler_fixtures.h"

namespace kvant {
namespace {

using namespace sampler_fixtures;

constexpr size_t kChainVocab = 150;

struct PlainCandidate {
  TokenId id;
  double logit;
};

// Sampler by sampler. XTC always acts, DRY has no breakers and looks at all tokens.
class PlainChain {
 public:
  PlainChain(const SamplingOptions& options, const LogitRow& logits, const Tokens& accepted)
      : o_(options), accepted_(accepted) {
    for (size_t id = 0; id < logits.size(); ++id) {
      list_.push_back({static_cast<TokenId>(id), static_cast<double>(logits[id])});
    }
    Sort();
  }

  void Apply(const std::string& name) {
    if (name == "penalties") Penalize();
    if (name == "dry") PenalizeRepetitions();
    if (name == "top_n_sigma") TakeNearTop();
    if (name == "top_k" && o_.top_k > 0) Take(static_cast<size_t>(o_.top_k));
    if (name == "typ_p" && o_.typical < 1) TakeTypical();
    if (name == "top_p" && o_.top_p < 1) TakeTopP();
    if (name == "min_p" && o_.min_p > 0) TakeMinP();
    if (name == "xtc" && o_.xtc_probability > 0) DropTop();
    if (name != "temperature") return;
    if (o_.temperature <= 0) return Take(1);
    for (PlainCandidate& one : list_) one.logit /= static_cast<double>(o_.temperature);
  }

  // Nothing if another token is nearly as likely.
  std::optional<TokenId> Likeliest() const {
    if (list_.size() > 1 && list_[0].logit - list_[1].logit < 100) return {};
    return list_[0].id;
  }

 private:
  size_t keep_min(int32_t least) const { return static_cast<size_t>(std::max(o_.min_keep, least)); }
  void Sort() {
    std::ranges::stable_sort(list_, [](const auto& a, const auto& b) {
      return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    });
  }
  void Take(size_t count) { list_.resize(std::min(list_.size(), count)); }
  std::vector<double> Shares() const {
    std::vector<double> shares;
    double sum = 0;
    for (const PlainCandidate& one : list_) {
      shares.push_back(std::exp(one.logit - list_[0].logit));
      sum += shares.back();
    }
    for (double& share : shares) share /= sum;
    return shares;
  }

  void Penalize() {
    for (PlainCandidate& one : list_) {
      const auto count = static_cast<double>(std::ranges::count(accepted_, one.id));
      if (count == 0) continue;
      const auto factor = static_cast<double>(o_.repeat_penalty);
      one.logit = one.logit <= 0 ? one.logit * factor : one.logit / factor;
      one.logit -= count * static_cast<double>(o_.frequency_penalty) +
                   static_cast<double>(o_.presence_penalty);
    }
    Sort();
  }
  void PenalizeRepetitions() {
    for (PlainCandidate& one : list_) {
      size_t longest = 0;
      for (size_t at = 1; at < accepted_.size(); ++at) {
        if (accepted_[at] != one.id) continue;
        size_t length = 0;
        while (length < at &&
               accepted_[at - 1 - length] == accepted_[accepted_.size() - 1 - length]) {
          ++length;
        }
        longest = std::max(longest, length);
      }
      const auto allowed = static_cast<size_t>(o_.dry_allowed_length);
      if (longest < allowed) continue;
      one.logit -=
          static_cast<double>(o_.dry_multiplier) *
          std::pow(static_cast<double>(o_.dry_base), static_cast<double>(longest - allowed));
    }
    Sort();
  }
  void TakeNearTop() {
    double sum = 0;
    for (const PlainCandidate& one : list_) sum += one.logit;
    const auto count = static_cast<double>(list_.size());
    double squares = 0;
    for (const PlainCandidate& one : list_) squares += std::pow(one.logit - sum / count, 2);
    if (list_.size() < 2) return;
    const double least =
        list_[0].logit - static_cast<double>(o_.top_n_sigma) * std::sqrt(squares / count);
    std::erase_if(list_, [&](const PlainCandidate& one) { return one.logit < least; });
  }
  void TakeTypical() {
    const std::vector<double> shares = Shares();
    double entropy = 0;
    for (const double share : shares) entropy -= share > 0 ? share * std::log(share) : 0;
    std::vector<size_t> order;
    for (size_t i = 0; i < list_.size(); ++i) {
      if (shares[i] > 1e-12) order.push_back(i);
    }
    std::ranges::stable_sort(order, {}, [&](size_t i) {
      return std::pair(std::fabs(-std::log(shares[i]) - entropy), list_[i].id);
    });
    double sum = 0;
    std::vector<PlainCandidate> kept;
    for (const size_t i : order) {
      kept.push_back(list_[i]);
      sum += shares[i];
      if (sum > static_cast<double>(o_.typical) && kept.size() >= keep_min(1)) break;
    }
    list_ = kept;
    Sort();
  }
  void TakeTopP() {
    const std::vector<double> shares = Shares();
    double sum = 0;
    size_t count = 0;
    while (count < list_.size() && sum < static_cast<double>(o_.top_p)) sum += shares[count++];
    Take(std::max(count, keep_min(1)));
  }
  void TakeMinP() {
    size_t count = 1;
    const double least = list_[0].logit + std::log(static_cast<double>(o_.min_p));
    while (count < list_.size() && list_[count].logit >= least) ++count;
    Take(std::max(count, keep_min(1)));
  }
  void DropTop() {
    const std::vector<double> shares = Shares();
    size_t reached = 0;
    while (reached < shares.size() && shares[reached] >= static_cast<double>(o_.xtc_threshold)) {
      ++reached;
    }
    if (reached < 2 || list_.size() - (reached - 1) < keep_min(0)) return;
    list_.erase(list_.begin(), list_.begin() + static_cast<ptrdiff_t>(reached) - 1);
  }

  const SamplingOptions& o_;
  const Tokens& accepted_;
  std::vector<PlainCandidate> list_;  // the likeliest first
};

LogitRow NormalLogits(Xoshiro256& random, double deviation) {
  LogitRow logits;
  for (size_t i = 0; i < kChainVocab; ++i) {
    double sum = -6;  // twelve uniform numbers: nearly a normal one
    for (int k = 0; k < 12; ++k) sum += static_cast<double>(random.Next() >> 11) * 0x1p-53;
    logits.push_back(static_cast<float>(sum * deviation));
  }
  return logits;
}

float OneOf(Xoshiro256& random, std::initializer_list<float> values) {
  return values.begin()[random.Below(values.size())];
}

// Every sampler that only filters or changes logits, each with a chance of 2/3 and in any order.
SamplingOptions RandomChain(Xoshiro256& random, bool temperature_last) {
  SamplingOptions o = FixtureOptions({});
  std::vector<std::string> names;
  for (const char* name :
       {"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc"}) {
    if (random.Below(3) > 0) names.emplace_back(name);
  }
  for (size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[random.Below(i)]);
  const size_t place = temperature_last ? names.size() : random.Below(names.size() + 1);
  names.insert(names.begin() + static_cast<ptrdiff_t>(place), "temperature");
  o.samplers = names;
  o.repeat_penalty = OneOf(random, {1.1f, 1.5f});
  o.presence_penalty = OneOf(random, {0, 0.5f});
  o.frequency_penalty = OneOf(random, {0, 0.7f});
  o.repeat_last_n = -1;
  o.dry_multiplier = OneOf(random, {0.8f, 3});
  o.dry_base = 1.75f;
  o.dry_allowed_length = 1;
  o.dry_penalty_last_n = -1;
  o.dry_sequence_breakers = {};
  o.top_n_sigma = OneOf(random, {0.5f, 1, 2.5f});
  o.top_k = static_cast<int32_t>(OneOf(random, {1, 2, 5, 40}));
  o.typical = OneOf(random, {0.2f, 0.5f, 0.9f});
  o.top_p = OneOf(random, {0.3f, 0.7f, 0.95f});
  o.min_p = OneOf(random, {0.02f, 0.1f, 0.5f});
  o.xtc_probability = 1;
  o.xtc_threshold = OneOf(random, {0.02f, 0.1f, 0.3f});
  o.min_keep = static_cast<int32_t>(OneOf(random, {0, 1, 3}));
  return o;
}

TokenId SampledToken(const SamplingOptions& options, const LogitRow& logits,
                     const Tokens& accepted) {
  auto sampler =
      Sampler::Create(options, static_cast<int32_t>(logits.size()), &Shakespeare().tokenizer());
  EXPECT_TRUE(sampler.ok()) << sampler.error().message;
  for (const TokenId id : accepted) sampler->Accept(id);
  return *sampler->Sample(logits);
}

TEST(ZeroTemperature, TakesTheLikeliestThatEverySamplerLeaves) {
  Xoshiro256 random(20);
  int compared = 0;
  int moved = 0;  // the choice is not the token of the largest logit
  for (int round = 0; round < 600; ++round) {
    SamplingOptions options = RandomChain(random, round % 2 == 0);
    const LogitRow logits = NormalLogits(random, 1.0 + 0.5 * static_cast<double>(round % 7));
    Tokens accepted;
    for (int i = 0; i < 25; ++i) accepted.push_back(static_cast<TokenId>(random.Below(6)));
    const auto top = std::ranges::max_element(logits) - logits.begin();
    for (const float temperature : {0.0f, 1e-6f}) {
      options.temperature = temperature;
      PlainChain expected(options, logits, accepted);
      std::string chain;
      for (const std::string& name : *options.samplers) {
        expected.Apply(name);
        chain += name + ";";
      }
      const auto token = expected.Likeliest();
      if (!token.has_value()) continue;
      ASSERT_EQ(SampledToken(options, logits, accepted), *token)
          << "round " << round << " temperature " << temperature << " chain " << chain;
      ++compared;
      moved += *token != top ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 1000);
  EXPECT_GT(moved, 200);
}

// Samplers that draw find one candidate behind a temperature of 0.
TEST(ZeroTemperature, LeavesSamplersThatDrawNoChoice) {
  Xoshiro256 random(21);
  for (int round = 0; round < 30; ++round) {
    const LogitRow logits = NormalLogits(random, 2);
    const auto top = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
    SamplingOptions options = FixtureOptions({});
    for (const float temperature : {0.0f, 1e-6f}) {
      options.temperature = temperature;
      for (const int32_t version : {1, 2}) {
        options.mirostat = version;
        EXPECT_EQ(SampledToken(options, logits, {}), top);
      }
      options.mirostat = 0;
      // Adaptive-p prefers what is unlikely as much as what is certain, so the rest must be gone.
      SamplingOptions adaptive = options;
      adaptive.adaptive_target = 0.3f;
      adaptive.min_p = 0.1f;
      adaptive.samplers = {"temperature", "min_p", "adaptive_p"};
      EXPECT_EQ(SampledToken(adaptive, logits, {}), top);
    }
  }
}

// Infill, which depends on what the filters in front of it leave.
TEST(ZeroTemperature, LeavesTheFiltersInFrontOfInfill) {
  const Tokenizer& tokenizer = Shakespeare().tokenizer();
  Xoshiro256 random(22);
  const auto vocab = static_cast<size_t>(tokenizer.vocab_size());
  int differing = 0;
  for (int round = 0; round < 40; ++round) {
    LogitRow logits(vocab, -std::numeric_limits<float>::infinity());
    for (int i = 0; i < 30; ++i) {
      logits[random.Below(vocab)] = static_cast<float>(random.Below(1000)) * 0.006f;
    }
    logits[static_cast<size_t>(*tokenizer.special().eos)] = 3.0f;
    SamplingOptions options = FixtureOptions({});
    options.top_k = 4;
    options.temperature = 0;
    std::vector<TokenId> chosen;
    for (const bool filters : {true, false}) {
      options.samplers = {"infill", "temperature"};
      if (filters) options.samplers->insert(options.samplers->begin(), "top_k");
      const Chances expected = ChainChances(options, logits, {});
      ASSERT_EQ(expected.size(), 1u);
      chosen.push_back(SampledToken(options, logits, {}));
      EXPECT_EQ(chosen.back(), expected.begin()->first) << "round " << round;
    }
    differing += chosen[0] != chosen[1] ? 1 : 0;
  }
  EXPECT_GT(differing, 0);
}

}  // namespace
}  // namespace kvant
