// Each sampler against what llama.cpp leaves of the same logits (tests/reference/samplers.json,
// written by make_sampler_cases.py), and against plain loops from the definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/generate/samplers/stage.h"
#include "kvant/model.h"
#include "kvant/random.h"
#include "kvant/sampler.h"
#include "tests/engine/generate/sampler_fixtures.h"

namespace kvant {
namespace {

using namespace sampler_fixtures;

// Draws must be of the expected tokens, and as often as expected by chi-square at far beyond five
// standard deviations.
template <class DrawToken>
void ExpectDraws(const Chances& expected, DrawToken draw, int draws) {
  std::map<TokenId, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[draw()];
  for (const auto& [id, count] : counts) EXPECT_TRUE(expected.contains(id)) << id << " x " << count;
  double chi_square = 0;
  int cells = 0;
  for (const auto& [id, chance] : expected) {
    const double mean = chance * draws;
    if (mean < 8) continue;
    chi_square += (counts[id] - mean) * (counts[id] - mean) / mean;
    ++cells;
  }
  EXPECT_LT(chi_square, cells + 5 * std::sqrt(2.0 * cells) + 5) << cells << " cells";
}

// Seven digits are in the fixtures, and llama.cpp computes in float: 1e-5 of a chance.
TEST(Samplers, ChainsLeaveWhatLlamaCppLeaves) {
  int compared = 0;
  for (const json& entry : Fixtures()["cases"]) {
    if (!entry.contains("logits")) continue;
    const SamplingOptions options = FixtureOptions(entry["options"]);
    const auto logits = entry["logits"].get<LogitRow>();
    const auto accepted = entry["accepted"].get<Tokens>();
    const auto ids = entry["ids"].get<Tokens>();
    const auto chances = entry["probabilities"].get<std::vector<double>>();
    const Chances found = ChainChances(options, logits, accepted);
    SCOPED_TRACE(entry["options"].dump());
    ASSERT_EQ(found.size(), ids.size());
    Chances expected;
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_TRUE(found.contains(ids[i])) << ids[i];
      EXPECT_NEAR(found.at(ids[i]), chances[i], 1e-5 * chances[i] + 1e-9) << ids[i];
      expected[ids[i]] = chances[i];
    }
    // The draws of a whole Sampler have these probabilities, too.
    auto sampler =
        Sampler::Create(options, static_cast<int32_t>(logits.size()), &Shakespeare().tokenizer());
    ASSERT_TRUE(sampler.ok()) << sampler.error().message;
    for (const TokenId id : accepted) sampler->Accept(id);
    ExpectDraws(
        expected, [&] { return *sampler->Sample(logits); }, 1000);
    ++compared;
  }
  EXPECT_GE(compared, 50);
}

TEST(Samplers, InfillLeavesWhatLlamaCppLeaves) {
  int joined = 0;
  int ended = 0;
  const Tokenizer& tokenizer = Shakespeare().tokenizer();
  for (const json& entry : Fixtures()["infill"]) {
    SCOPED_TRACE(entry.dump());
    LogitRow logits(static_cast<size_t>(tokenizer.vocab_size()),
                    -std::numeric_limits<float>::infinity());
    for (const json& candidate : entry["candidates"]) logits[candidate[0]] = candidate[1];
    const Chances found = ChainChances(FixtureOptions(entry["options"]), logits, {});
    const auto ids = entry["ids"].get<Tokens>();
    ASSERT_EQ(found.size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_TRUE(found.contains(ids[i])) << ids[i];
      const double chance = entry["probabilities"][i];
      EXPECT_NEAR(found.at(ids[i]), chance, 1e-5 * chance + 1e-9) << ids[i];
    }
    const bool ends = ids.size() == 1 && tokenizer.is_end_of_generation(ids[0]);
    (ends ? ended : joined) += 1;
  }
  EXPECT_GT(joined, 10);
  EXPECT_GT(ended, 10);
}

TEST(Samplers, InfillNeedsAnEndToken) {
  SamplingOptions options;
  options.samplers = {"infill"};
  const auto sampler = Sampler::Create(options, 100, nullptr);
  ASSERT_FALSE(sampler.ok());
  EXPECT_EQ(sampler.error().message,
            "samplers: infill: expected a tokenizer to compare tokens, found none");
}

TEST(Samplers, DryPenalizesWhatLlamaCppPenalizes) {
  int compared = 0;
  for (const json& entry : Fixtures()["cases"]) {
    if (!entry.contains("relative")) continue;
    const SamplingOptions options = FixtureOptions(entry["options"]);
    const size_t vocab = entry["vocab"].get<size_t>();
    ASSERT_EQ(static_cast<int32_t>(vocab), Shakespeare().tokenizer().vocab_size());
    const Chances found =
        ChainChances(options, LogitRow(vocab, 0.0f), entry["accepted"].get<Tokens>());
    double commonest = 0;
    for (const auto& [id, chance] : found) commonest = std::max(commonest, chance);
    Chances expected;
    for (const json& pair : entry["relative"]) {
      expected[pair[0].get<TokenId>()] = pair[1].get<double>();
    }
    SCOPED_TRACE(entry["options"].dump() + entry["accepted"].dump());
    for (const auto& [id, chance] : found) {
      const auto changed = expected.find(id);
      const double relative = changed == expected.end() ? 1.0 : changed->second;
      EXPECT_NEAR(chance / commonest, relative, 2e-5 * relative + 1e-9) << id;
    }
    compared += expected.empty() ? 0 : 1;
  }
  EXPECT_GE(compared, 20);
}

// DRY by its definition, without the Z-algorithm: -1 for a token that is not penalized.
std::map<TokenId, int> DryReference(const Tokens& text, size_t window, int allowed,
                                    TokenId breaker) {
  const size_t begin = text.size() - std::min(window, text.size());
  std::map<TokenId, int> lengths;
  for (size_t end = begin + 1; end < text.size(); ++end) {  // an earlier occurrence ends before it
    int length = 0;
    while (end >= begin + 1 + static_cast<size_t>(length)) {
      const TokenId a = text[end - 1 - static_cast<size_t>(length)];
      const TokenId b = text[text.size() - 1 - static_cast<size_t>(length)];
      if (a != b || b == breaker) break;
      ++length;
    }
    if (length < allowed || text[end] == breaker) continue;
    int& longest = lengths.try_emplace(text[end], length).first->second;
    longest = std::max(longest, length);
  }
  return lengths;
}

TEST(Samplers, DryFollowsItsDefinition) {
  const Tokenizer& tokenizer = Shakespeare().tokenizer();
  const TokenId breaker = tokenizer.Encode("\n", {})->back();
  Xoshiro256 random(9);
  const auto vocab = static_cast<size_t>(tokenizer.vocab_size());
  for (int round = 0; round < 60; ++round) {
    SamplingOptions options = FixtureOptions({});
    options.dry_multiplier = 0.5f;
    options.dry_base = 1.5f;
    options.dry_allowed_length = static_cast<int32_t>(1 + random.Below(3));
    options.dry_penalty_last_n = round % 2 == 0 ? -1 : static_cast<int32_t>(3 + random.Below(40));
    options.dry_sequence_breakers = {"\n"};
    Tokens text;
    for (int i = 0; i < 50; ++i) {
      const auto draw = static_cast<TokenId>(random.Below(24));
      text.push_back(draw == 0 ? breaker : 40 + draw % 3);
    }
    const size_t window = options.dry_penalty_last_n < 0
                              ? text.size()
                              : static_cast<size_t>(options.dry_penalty_last_n);
    const auto lengths = DryReference(text, window, options.dry_allowed_length, breaker);
    auto stage = kDrySampler.make({options, vocab, &tokenizer});
    ASSERT_TRUE(stage.ok());
    for (const TokenId id : text) (*stage)->Accept(id, TokenFrom::kText);
    Candidates candidates(vocab, vocab);
    candidates.Start(LogitRow(vocab, 0.0f));
    (*stage)->Apply(candidates, random);
    for (size_t id = 0; id < vocab; ++id) {
      const auto found = lengths.find(static_cast<TokenId>(id));
      const double penalty = found == lengths.end()
                                 ? 0
                                 : 0.5 * std::pow(1.5, found->second - options.dry_allowed_length);
      EXPECT_NEAR(static_cast<double>(candidates.row()[id]), -penalty, 1e-6 * penalty)
          << "round " << round << " token " << id;
    }
  }
}

TEST(Samplers, DryNeedsATokenizerForItsBreakers) {
  SamplingOptions options;
  options.dry_multiplier = 1;
  const auto refused = Sampler::Create(options, 10);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "dry-sequence-breaker: expected a tokenizer to find the breakers' tokens, found none");
  options.dry_sequence_breakers.clear();
  EXPECT_TRUE(Sampler::Create(options, 10).ok());
}

// All tokens sorted by how far their surprise is from the entropy, in double: the ids that stay.
std::set<TokenId> TypicalReference(const LogitRow& logits, double p, size_t keep_min) {
  const double best = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  std::vector<double> shares;
  double sum = 0;
  for (const float logit : logits) {
    const double weight = std::exp(static_cast<double>(logit) - best);
    shares.push_back(weight < 0x1p-40 ? 0 : weight);
    sum += shares.back();
  }
  double entropy = 0;
  for (double& share : shares) {
    share /= sum;
    entropy -= share > 0 ? share * std::log(share) : 0;
  }
  std::vector<TokenId> order;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (shares[id] > 0) order.push_back(static_cast<TokenId>(id));
  }
  const auto distance = [&](TokenId id) {
    return std::fabs(-std::log(shares[static_cast<size_t>(id)]) - entropy);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return distance(a) < distance(b); });
  std::set<TokenId> kept;
  double together = 0;
  for (const TokenId id : order) {
    kept.insert(id);
    together += shares[static_cast<size_t>(id)];
    if (together > p && kept.size() >= keep_min) break;
  }
  return kept;
}

// Rows from flat to steep, some with few different values, so that many distances are equal.
TEST(Samplers, TypicalOfALargeVocabularyFollowsItsDefinition) {
  Xoshiro256 random(31);
  for (int round = 0; round < 36; ++round) {
    LogitRow logits(round % 4 == 0 ? 300 : 20000);
    const double spread = round % 3 == 0 ? 1 : 6.0 * (round % 3);
    for (float& logit : logits) {
      const double unit = static_cast<double>(random.Next() >> 11) * 0x1p-53;
      const double value = spread * std::log(1 / (unit + 1e-9));
      logit = static_cast<float>(round % 6 == 5 ? std::floor(value / 4) : value);
    }
    if (round % 9 == 8) std::fill(logits.begin(), logits.end(), 1.0f);
    SamplingOptions options = FixtureOptions({});
    for (const float p : {0.05f, 0.45f, 0.95f}) {
      options.typical = p;
      options.min_keep = round % 2 == 0 ? 0 : 50;
      const size_t keep_min = static_cast<size_t>(std::max(options.min_keep, 1));
      std::set<TokenId> found;
      for (const auto& [id, chance] : ChainChances(options, logits, {})) found.insert(id);
      const auto expected = TypicalReference(logits, static_cast<double>(p), keep_min);
      EXPECT_TRUE(found == expected) << "round " << round << " p " << p << ": " << found.size()
                                     << " and " << expected.size() << " tokens";
    }
  }
}

// ---- Samplers that adapt ------------------------------------------------------------------------

Chances Softmax(const LogitRow& logits) {
  double sum = 0;
  const double best = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  Chances out;
  for (size_t i = 0; i < logits.size(); ++i) {
    sum += out[static_cast<TokenId>(i)] = std::exp(static_cast<double>(logits[i]) - best);
  }
  for (auto& entry : out) entry.second /= sum;
  return out;
}

void Renormalize(Chances& chances) {
  double sum = 0;
  for (const auto& entry : chances) sum += entry.second;
  for (auto& entry : chances) entry.second /= sum;
}

// Mirostat and adaptive-p in double, from their definitions.
class AdaptingReference {
 public:
  explicit AdaptingReference(const SamplingOptions& options) : o_(options) {
    mu_ = 2 * double{o_.mirostat_tau};
    sum_ = double{o_.adaptive_target} / (1 - double{o_.adaptive_decay});
    weight_ = 1 / (1 - double{o_.adaptive_decay});
  }

  Chances Next(const LogitRow& logits) const {
    Chances all = Softmax(logits);
    if (o_.mirostat == 0) return Adaptive(all);
    std::vector<std::pair<double, TokenId>> order;
    for (const auto& [id, p] : all) order.emplace_back(-p, id);
    std::sort(order.begin(), order.end());
    size_t count = 0;
    if (o_.mirostat == 2) {
      while (count < order.size() && -std::log2(-order[count].first) <= mu_) ++count;
    } else {
      double products = 0;
      double squares = 0;
      for (size_t i = 0; i + 1 < std::min<size_t>(order.size(), 100); ++i) {
        const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
        products += t * std::log(order[i].first / order[i + 1].first);
        squares += t * t;
      }
      const double s = products / squares;
      const double n = static_cast<double>(order.size());
      const double k = std::pow((s - 1) * std::pow(2, mu_) / (1 - std::pow(n, 1 - s)), 1 / s);
      count = static_cast<size_t>(std::min(k, n));
    }
    Chances kept;
    for (size_t i = 0; i < std::max<size_t>(count, 1); ++i) {
      kept[order[i].second] = -order[i].first;
    }
    Renormalize(kept);
    return kept;
  }

  void Chose(const LogitRow& logits, TokenId id) {
    mu_ -= double{o_.mirostat_eta} * (-std::log2(Next(logits).at(id)) - double{o_.mirostat_tau});
    sum_ = double{o_.adaptive_decay} * sum_ + Softmax(logits).at(id);
    weight_ = double{o_.adaptive_decay} * weight_ + 1;
  }

 private:
  Chances Adaptive(const Chances& all) const {
    const double target = std::clamp(2 * double{o_.adaptive_target} - sum_ / weight_, 0.0, 1.0);
    Chances out;
    for (const auto& [id, p] : all) {
      const double d = std::fabs(p - target) / 0.3;
      out[id] = std::exp(5 - 10 * d * d / (1 + d));
    }
    Renormalize(out);
    return out;
  }

  SamplingOptions o_;
  double mu_;
  double sum_;
  double weight_;
};

TEST(Samplers, ReferenceOfAdaptingSamplersIsLlamaCpps) {
  for (const json& entry : Fixtures()["adapting"]) {
    AdaptingReference reference(FixtureOptions(entry["options"]));
    for (const json& step : entry["steps"]) {
      SCOPED_TRACE(entry["options"].dump());
      const auto logits = step["logits"].get<LogitRow>();
      const Chances found = reference.Next(logits);
      const auto ids = step["ids"].get<Tokens>();
      const auto chances = step["probabilities"].get<std::vector<double>>();
      ASSERT_EQ(found.size(), ids.size());
      for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_NEAR(found.at(ids[i]), chances[i], 1e-4 * chances[i] + 1e-9);
      }
      reference.Chose(logits, step["chosen"].get<TokenId>());
    }
  }
}

TEST(Samplers, AdaptingSamplersFollowTheirReference) {
  for (const json& entry : Fixtures()["adapting"]) {
    SCOPED_TRACE(entry["options"].dump());
    const SamplingOptions options = FixtureOptions(entry["options"]);
    AdaptingReference reference(options);
    const size_t vocab = entry["steps"][0]["logits"].size();
    auto sampler = Sampler::Create(options, static_cast<int32_t>(vocab));
    ASSERT_TRUE(sampler.ok()) << sampler.error().message;
    for (const json& step : entry["steps"]) {
      const auto logits = step["logits"].get<LogitRow>();
      if (options.mirostat == 0) {  // draws that are not accepted change nothing
        ExpectDraws(
            reference.Next(logits), [&] { return *sampler->Sample(logits); }, 2000);
      }
      const auto id = sampler->Sample(logits);
      ASSERT_TRUE(id.ok());
      ASSERT_TRUE(reference.Next(logits).contains(*id));
      reference.Chose(logits, *id);
      sampler->Accept(*id);
    }
  }
}

TEST(Samplers, MirostatThatDoesNotAdaptDrawsAsItsReference) {
  const auto logits = Fixtures()["adapting"][0]["steps"][0]["logits"].get<LogitRow>();
  for (const int32_t version : {1, 2}) {
    for (const float tau : {0.5f, 1.5f, 2.5f}) {
      SamplingOptions options = FixtureOptions({});
      options.mirostat = version;
      options.mirostat_tau = tau;
      options.mirostat_eta = 0;
      auto sampler = Sampler::Create(options, static_cast<int32_t>(logits.size()));
      ASSERT_TRUE(sampler.ok());
      ExpectDraws(
          AdaptingReference(options).Next(logits), [&] { return *sampler->Sample(logits); }, 4000);
    }
  }
}

// ---- Chains -------------------------------------------------------------------------------------

TEST(Samplers, NamesAndLettersOfChains) {
  EXPECT_EQ(*ParseSamplers("top_k;temperature"),
            (std::vector<std::string>{"top_k", "temperature"}));
  EXPECT_EQ(*ParseSamplers("top-k;nucleus;typ-p;temp;adaptive-p"),
            (std::vector<std::string>{"top_k", "top_p", "typ_p", "temperature", "adaptive_p"}));
  EXPECT_EQ(*ParseSamplers(""), std::vector<std::string>{});
  EXPECT_EQ(*ParseSamplerLetters("edskypmxt"),
            (std::vector<std::string>{"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p",
                                      "min_p", "xtc", "temperature"}));
  EXPECT_EQ(ChainNames({}), *ParseSamplerLetters("edskypmxt"));
  const auto unknown = ParseSamplers("top_k;top_z");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(
      unknown.error().message,
      "expected names of samplers, of penalties (e), dry (d), top_n_sigma (s), top_k (k), "
      "typ_p (y), top_p (p), min_p (m), xtc (x), temperature (t), adaptive_p (a), infill (i), "
      "found 'top_z'");
  EXPECT_FALSE(ParseSamplerLetters("kz").ok());
  EXPECT_FALSE(ParseSamplers("mirostat").ok());
}

TEST(Samplers, SettingsHaveOwnNamesFlagsAndKeys) {
  std::set<std::string_view> names;
  std::set<std::string_view> keys;
  std::set<char> letters;
  for (const SamplerRow* row : AllSamplers()) {
    if (row->letter != 0) {
      EXPECT_TRUE(letters.insert(row->letter).second) << row->name;
    }
    for (const SamplerSetting& setting : row->settings) {
      EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
      EXPECT_TRUE(setting.flags.starts_with("--"));
      if (!setting.key.empty()) {
        EXPECT_TRUE(keys.insert(setting.key).second) << setting.key;
      }
    }
  }
  for (const char* key :
       {"top_k", "top_p", "min_p", "xtc_probability", "xtc_threshold", "temp", "penalty_last_n",
        "penalty_repeat", "mirostat", "mirostat_tau", "mirostat_eta"}) {
    EXPECT_TRUE(keys.contains(key)) << key;
  }
}

TEST(Samplers, WrongSettingsAreNamed) {
  const auto message = [](auto change) {
    SamplingOptions options;
    change(options);
    const auto sampler = Sampler::Create(options, 100);
    EXPECT_FALSE(sampler.ok());
    return sampler.ok() ? std::string() : sampler.error().message;
  };
  using O = SamplingOptions;
  EXPECT_EQ(message([](O& o) { o.dry_base = 0.5f; }), "dry-base: expected 1 or more, found 0.5");
  EXPECT_EQ(message([](O& o) { o.mirostat = 3; }), "mirostat: expected 0, 1 or 2, found 3");
  EXPECT_EQ(message([](O& o) { o.adaptive_decay = 1; }),
            "adaptive-decay: expected 0 to 0.99, found 1");
  EXPECT_EQ(message([](O& o) { o.adaptive_target = 0.5f; }),
            "adaptive-target: expected adaptive_p among the samplers with it");
  EXPECT_TRUE(message([](O& o) { o.dry_multiplier = NAN; }).starts_with("dry-multiplier:"));
  EXPECT_TRUE(message([](O& o) { o.dry_allowed_length = -1; }).starts_with("dry-allowed-"));
  EXPECT_TRUE(message([](O& o) { o.dry_penalty_last_n = -2; }).starts_with("dry-penalty-"));
  EXPECT_TRUE(message([](O& o) { o.xtc_probability = 1.5f; }).starts_with("xtc-prob"));
  EXPECT_TRUE(message([](O& o) { o.xtc_threshold = -1; }).starts_with("xtc-thresh"));
  EXPECT_TRUE(message([](O& o) { o.dynatemp_range = -1; }).starts_with("dynatemp-range:"));
  EXPECT_TRUE(message([](O& o) { o.top_n_sigma = NAN; }).starts_with("top-n-sigma:"));
  EXPECT_TRUE(message([](O& o) { o.mirostat_tau = -1; }).starts_with("mirostat-ent:"));
  EXPECT_TRUE(message([](O& o) { o.samplers = {"top_q"}; }).starts_with("samplers: expected"));
}

// XTC with a chance of a half acts in about half of the draws, and the seed says in which.
TEST(Samplers, XtcActsByChance) {
  SamplingOptions options = FixtureOptions({});
  options.xtc_probability = 0.5f;
  options.xtc_threshold = 0.2f;
  options.temperature = 0;  // the likeliest token, or of XTC's choice the least likely
  const LogitRow logits = {2, 1.9f, 1.8f, -5};
  auto a = Sampler::Create(options, 4);
  auto b = Sampler::Create(options, 4);
  int acted = 0;
  for (int i = 0; i < 1000; ++i) {
    const TokenId id = *a->Sample(logits);
    EXPECT_EQ(id, *b->Sample(logits));
    EXPECT_TRUE(id == 0 || id == 2);
    acted += id == 2 ? 1 : 0;
  }
  EXPECT_GT(acted, 400);
  EXPECT_LT(acted, 600);
}

}  // namespace
}  // namespace kvant
