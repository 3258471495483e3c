// Beam search on tables of logits: against a naive search that copies whole beams and sorts
// everything (beam_reference.h), against the enumeration of all texts, and at its edges.
#include "kvant/beam_search.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kvant/random.h"
#include "tests/engine/generate/beam_reference.h"

namespace kvant::test {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

// Logits that depend on the whole prefix and nothing else.
struct TableModel {
  int32_t vocab = 8;
  uint64_t seed = 1;
  int levels = 0;  // > 0: so many different values, so that sums tie
  float spread = 4.0f;
  float end_bonus = 0.0f;
  std::vector<TokenId> end_tokens;

  std::vector<float> operator()(const std::vector<TokenId>& prefix) const {
    uint64_t state = seed;
    for (const TokenId token : prefix) {
      state = SplitMix64(state ^ (static_cast<uint64_t>(token) + 1)).Next();
    }
    SplitMix64 random(state);
    std::vector<float> logits(static_cast<size_t>(vocab));
    for (float& logit : logits) {
      const uint64_t draw = random.Next() >> 40;
      const float unit = levels > 0 ? static_cast<float>(draw % static_cast<uint64_t>(levels)) /
                                          static_cast<float>(levels)
                                    : static_cast<float>(draw) * 0x1p-24f;
      logit = spread * unit;
    }
    for (const TokenId token : end_tokens) logits[static_cast<size_t>(token)] += end_bonus;
    return logits;
  }
};

struct SearchOutcome {
  std::vector<BeamHypothesis> results;
  int64_t steps = 0;
  int64_t rows = 0;
};

// Runs a search to its end, keeping the texts of its beams by parents() and tokens() alone.
SearchOutcome RunSearch(BeamSearch& search, const FakeModel& model,
                        const std::vector<TokenId>& prompt) {
  SearchOutcome outcome;
  EXPECT_TRUE(search.Start(prompt).ok());
  std::vector<std::vector<TokenId>> texts = {prompt};
  while (!search.done()) {
    std::vector<std::vector<float>> rows;
    for (const auto& text : texts) rows.push_back(model(text));
    EXPECT_EQ(search.rows(), static_cast<int64_t>(rows.size()));
    const Status status =
        search.Step(std::vector<std::span<const float>>(rows.begin(), rows.end()));
    if (!status.ok()) break;
    outcome.rows += static_cast<int64_t>(rows.size());
    ++outcome.steps;
    std::vector<std::vector<TokenId>> next;
    for (size_t i = 0; i < search.parents().size(); ++i) {
      next.push_back(texts[static_cast<size_t>(search.parents()[i])]);
      next.back().push_back(search.tokens()[i]);
    }
    texts = next;
  }
  outcome.results = search.Results();
  return outcome;
}

SearchOutcome RunSearch(const BeamOptions& options, int32_t vocab, const FakeModel& model,
                        const std::vector<TokenId>& prompt = {1}) {
  auto search = BeamSearch::Create(options, vocab);
  EXPECT_TRUE(search.ok()) << search.error().message;
  if (!search.ok()) return {};
  return RunSearch(*search, model, prompt);
}

// ---- Against the naive search -------------------------------------------------------------------

struct RandomCase {
  BeamOptions options;
  TableModel model;
  std::vector<TokenId> prompt;
};

template <class Value>
Value Pick(Xoshiro256& random, std::initializer_list<Value> values) {
  return *(values.begin() + random.Below(values.size()));
}

// Adds each option that bans or forces tokens in a quarter of the cases. The words are short and of
// few tokens, so that texts come to their ends.
void AddProcessors(Xoshiro256& random, RandomCase& c) {
  BeamOptions& o = c.options;
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random.Below(static_cast<uint64_t>(end)));
  };
  if (random.Below(4) == 0) o.suppress = {0, 4};
  if (random.Below(4) == 0) o.begin_suppress = Pick(random, {std::vector{2}, std::vector{1, 6}});
  if (random.Below(4) == 0) o.min_new_tokens = below(o.max_new_tokens + 1);
  if (random.Below(4) == 0) o.min_length = below(12);
  if (random.Below(4) == 0) {
    o.bad_words.resize(1 + random.Below(12));
    for (std::vector<TokenId>& word : o.bad_words) {
      word.resize(1 + random.Below(3));
      for (TokenId& token : word) token = static_cast<TokenId>(random.Below(8));
    }
  }
  if (o.scoring == BeamScoring::kHf) {
    if (random.Below(4) == 0) {
      o.forced_bos = static_cast<TokenId>(5 + random.Below(3));
      if (random.Below(2) == 0) c.prompt.resize(1);
    }
    if (random.Below(4) == 0) o.forced_eos = Pick(random, {std::vector{1}, std::vector{0, 2, 7}});
    o.renormalize = random.Below(4) == 0;
  }
  if (random.Below(4) != 0) return;
  o.max_length = std::ssize(c.prompt) + o.max_new_tokens;
  o.min_length = std::min(o.min_length, o.max_length);
}

RandomCase MakeCase(uint64_t seed, BeamScoring scoring) {
  Xoshiro256 random(seed);
  RandomCase c;
  c.prompt.resize(1 + random.Below(6));
  for (TokenId& token : c.prompt) token = static_cast<TokenId>(random.Below(8));
  BeamOptions& o = c.options;
  o.scoring = scoring;
  const bool hf = scoring == BeamScoring::kHf;
  o.beams = 1 + static_cast<int32_t>(random.Below(6));
  if (hf && random.Below(3) == 0) {
    o.groups = o.beams;
    if (o.beams % 2 == 0 && random.Below(2) == 0) o.groups = o.beams / 2;
    if (o.groups > 1) o.diversity_penalty = Pick(random, {0.25f, 0.5f, 3.0f});
  }
  o.num_return = 1 + static_cast<int32_t>(random.Below(static_cast<uint64_t>(o.beams)));
  if (random.Below(4) != 0) o.length_penalty = Pick(random, {-1.0f, 0.0f, 0.6f, 1.0f, 2.0f});
  o.early_stopping = Pick(random, {EarlyStopping::kFalse, EarlyStopping::kTrue});
  if (hf && random.Below(3) == 0) o.early_stopping = EarlyStopping::kNever;
  if (scoring == BeamScoring::kCt2 || scoring == BeamScoring::kWhisper) {
    o.patience = Pick(random, {1.0f, 1.0f, 1.5f, 2.0f});
  }
  o.ct2_length_counts_end = random.Below(2) == 0;
  for (TokenId token = 0; token < static_cast<TokenId>(random.Below(4)); ++token) {
    o.end_tokens.push_back(2 * token + 1);
  }
  o.max_new_tokens = 1 + static_cast<int64_t>(random.Below(9));
  if (random.Below(4) == 0) o.repetition_penalty = Pick(random, {0.8f, 1.3f});
  if (random.Below(4) == 0) o.no_repeat_ngram = 1 + static_cast<int32_t>(random.Below(3));
  AddProcessors(random, c);
  // Room for all candidates of a first step, whatever is banned: see the header on copies of the
  // prompt.
  c.model.vocab = static_cast<int32_t>(BeamCandidateCount(o, o.beams)) + 24;
  c.model.seed = random.Next();
  c.model.levels = Pick(random, {0, 0, 2, 5});
  c.model.spread = Pick(random, {0.5f, 4.0f, 12.0f});
  c.model.end_bonus = Pick(random, {0.0f, 1.0f, 4.0f});
  c.model.end_tokens = o.end_tokens;
  return c;
}

void ExpectSame(const std::vector<BeamHypothesis>& found, const std::vector<NaiveBeam>& expected,
                uint64_t seed) {
  ASSERT_EQ(found.size(), expected.size()) << "seed " << seed;
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].ids, expected[i].ids) << "seed " << seed << " rank " << i;
    EXPECT_EQ(found[i].parents, expected[i].parents) << "seed " << seed << " rank " << i;
    EXPECT_EQ(found[i].log_probs, expected[i].log_probs) << "seed " << seed << " rank " << i;
    EXPECT_EQ(found[i].sum, expected[i].sum) << "seed " << seed << " rank " << i;
    EXPECT_FLOAT_EQ(found[i].score, expected[i].score) << "seed " << seed << " rank " << i;
  }
}

class BeamSearchRandom : public testing::TestWithParam<BeamScoring> {};

TEST_P(BeamSearchRandom, EqualsTheNaiveSearch) {
  int64_t ended = 0, open = 0;
  for (uint64_t seed = 1; seed <= 800; ++seed) {
    const RandomCase c = MakeCase(seed, GetParam());
    const auto found = RunSearch(c.options, c.model.vocab, c.model, c.prompt).results;
    ExpectSame(found, NaiveBeamSearch(c.options, c.model.vocab, c.model, c.prompt).Run(), seed);
    if (HasFailure()) return;
    for (const BeamHypothesis& hypothesis : found) ++(hypothesis.ended ? ended : open);
  }
  // The cases are of all kinds.
  EXPECT_GT(ended, 300);
  EXPECT_GT(open, 300);
}

std::string ScoringName(const testing::TestParamInfo<BeamScoring>& scoring) {
  constexpr const char* kNames[] = {"Hf", "Ct2", "Whisper", "Oga"};
  return kNames[static_cast<size_t>(scoring.param)];
}

INSTANTIATE_TEST_SUITE_P(Scorings, BeamSearchRandom,
                         testing::Values(BeamScoring::kHf, BeamScoring::kCt2, BeamScoring::kWhisper,
                                         BeamScoring::kOga),
                         ScoringName);

// ---- Against all texts --------------------------------------------------------------------------

struct EnumeratedText {
  std::vector<TokenId> ids;
  double score;
};

// Every text of at most `length_max` tokens that ends with token 0, or is that long.
void Enumerate(const TableModel& model, double penalty, size_t length_max, EnumeratedText& text,
               double sum, std::vector<EnumeratedText>& all) {
  std::vector<TokenId> prefix = {1};
  prefix.insert(prefix.end(), text.ids.begin(), text.ids.end());
  const std::vector<float> logits = model(prefix);
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  for (TokenId token = 0; token < model.vocab; ++token) {
    const double log_prob =
        static_cast<double>(logits[static_cast<size_t>(token)]) - std::log(total);
    text.ids.push_back(token);
    if (token == 0 || text.ids.size() == length_max) {
      const double length = static_cast<double>(text.ids.size());
      all.push_back({text.ids, (sum + log_prob) / std::pow(length, penalty)});
    } else {
      Enumerate(model, penalty, length_max, text, sum + log_prob, all);
    }
    text.ids.pop_back();
  }
}

// Vocabulary of 5, four tokens, as many beams as there are beginnings of three tokens.
TEST(BeamSearch, WithAllBeamsFindsTheBestOfAllTexts) {
  constexpr size_t kShown = 20;
  for (const float penalty : {0.0f, 0.6f, 1.0f, 2.0f}) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      TableModel model;
      model.vocab = 5;
      model.seed = seed;
      BeamOptions options;
      options.beams = 125;
      options.num_return = kShown;
      options.length_penalty = penalty;
      options.early_stopping = EarlyStopping::kNever;
      options.end_tokens = {0};
      options.max_new_tokens = 4;
      const auto found = RunSearch(options, model.vocab, model).results;
      std::vector<EnumeratedText> all;
      EnumeratedText empty;
      Enumerate(model, static_cast<double>(penalty), 4, empty, 0.0, all);
      std::sort(all.begin(), all.end(),
                [](const EnumeratedText& a, const EnumeratedText& b) { return a.score > b.score; });
      ASSERT_EQ(found.size(), kShown);
      for (size_t i = 0; i < kShown; ++i) {
        EXPECT_EQ(found[i].ids, all[i].ids) << "seed " << seed << " rank " << i;
        EXPECT_NEAR(static_cast<double>(found[i].score), all[i].score, 1e-5);
      }
      if (HasFailure()) return;
    }
  }
}

// ---- Beams and groups ---------------------------------------------------------------------------

TEST(BeamSearch, OneBeamIsGreedy) {
  TableModel model;
  model.vocab = 20;
  BeamOptions options;
  options.end_tokens = {3};
  options.max_new_tokens = 30;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    model.seed = seed;
    std::vector<TokenId> text = {1};
    for (int64_t i = 0; i < options.max_new_tokens && (i == 0 || text.back() != 3); ++i) {
      const auto logits = model(text);
      const auto best = std::max_element(logits.begin(), logits.end());
      text.push_back(static_cast<TokenId>(best - logits.begin()));
    }
    const auto found = RunSearch(options, model.vocab, model).results;
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].ids, std::vector<TokenId>(text.begin() + 1, text.end())) << seed;
  }
}

TEST(BeamSearch, GroupsOfOneTakeDifferentFirstTokens) {
  BeamOptions options;
  options.beams = options.groups = options.num_return = 5;
  options.diversity_penalty = 100.0f;
  options.max_new_tokens = 3;
  const FakeModel model = [](const std::vector<TokenId>&) {
    return std::vector<float>{0, 1, 2, 30, 3, 4, 5, 6};
  };
  std::set<TokenId> firsts;
  for (const auto& found : RunSearch(options, 8, model).results) firsts.insert(found.ids[0]);
  EXPECT_EQ(firsts, (std::set<TokenId>{3, 4, 5, 6, 7}));
}

// After token 1 the only choice is the end, so the first group is done after two steps.
TEST(BeamSearch, FinishedGroupsHaveNoRows) {
  BeamOptions options;
  options.beams = options.groups = options.num_return = 2;
  options.diversity_penalty = 5.0f;
  options.end_tokens = {0};
  options.max_new_tokens = 4;
  const FakeModel model = [](const std::vector<TokenId>& text) {
    if (text == std::vector<TokenId>{7, 1}) return std::vector<float>{90, 0, 0, 0, 0, 0, 0, 0};
    return std::vector<float>{0, 9, 8, 1, 2, 3, 4, 5};
  };
  const SearchOutcome outcome = RunSearch(options, 8, model, {7});
  EXPECT_EQ(outcome.steps, 4);
  EXPECT_EQ(outcome.rows, 1 + 2 + 1 + 1);
  ASSERT_EQ(outcome.results.size(), 2u);
  EXPECT_EQ(outcome.results[0].ids, (std::vector<TokenId>{1, 0}));
  EXPECT_EQ(outcome.results[0].parents, (std::vector<int32_t>{0, 0}));
  // The step that ended the first group had a beam of it take token 1; later ones have nobody pay.
  EXPECT_EQ(outcome.results[1].ids, (std::vector<TokenId>{2, 2, 1, 1}));
  EXPECT_EQ(outcome.results[1].parents, (std::vector<int32_t>{1, 1, 1, 1}));
}

// ---- Edges --------------------------------------------------------------------------------------

const FakeModel kFlat = [](const std::vector<TokenId>&) { return std::vector<float>(10, 1.5f); };

TEST(BeamSearch, TiesGoToTheLowerBeamAndToken) {
  BeamOptions options;
  options.beams = options.num_return = 4;
  options.max_new_tokens = 2;
  const auto found = RunSearch(options, 10, kFlat).results;
  ASSERT_EQ(found.size(), 4u);
  for (TokenId i = 0; i < 4; ++i) {
    EXPECT_EQ(found[static_cast<size_t>(i)].ids, (std::vector<TokenId>{0, i}));
    EXPECT_EQ(found[static_cast<size_t>(i)].parents, (std::vector<int32_t>{0, 0}));
    EXPECT_FLOAT_EQ(found[static_cast<size_t>(i)].score, -std::log(10.0f));
  }
}

TEST(BeamSearch, AllBeamsMayEndAtOnce) {
  for (const BeamScoring scoring :
       {BeamScoring::kHf, BeamScoring::kCt2, BeamScoring::kWhisper, BeamScoring::kOga}) {
    BeamOptions options;
    options.scoring = scoring;
    options.beams = options.num_return = 3;
    options.end_tokens = {1, 2, 5};
    options.early_stopping = EarlyStopping::kTrue;
    options.max_new_tokens = 9;
    const FakeModel model = [](const std::vector<TokenId>&) {
      return std::vector<float>{0, 9, 8, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0};
    };
    const SearchOutcome outcome = RunSearch(options, 14, model);
    EXPECT_EQ(outcome.steps, 1);
    ASSERT_EQ(outcome.results.size(), 3u);
    for (const BeamHypothesis& found : outcome.results) EXPECT_TRUE(found.ended);
  }
}

TEST(BeamSearch, MoreBeamsThanTokens) {
  TableModel model;
  model.vocab = 3;
  BeamOptions options;
  options.beams = options.num_return = 20;
  options.end_tokens = {0};
  options.max_new_tokens = 3;
  options.early_stopping = EarlyStopping::kNever;
  const SearchOutcome outcome = RunSearch(options, 3, model);
  // 0; 1 0, 2 0; and two times two beginnings with three ends each: there are no others.
  EXPECT_EQ(outcome.results.size(), 1u + 2u + 12u);
  EXPECT_EQ(outcome.rows, 1 + 2 + 4);
}

TEST(BeamSearch, ImpossibleTokensAreNeverTaken) {
  BeamOptions options;
  options.beams = options.num_return = 4;
  options.max_new_tokens = 3;
  const FakeModel model = [](const std::vector<TokenId>& text) {
    std::vector<float> row(9, -kInfinite);
    row[3] = 1.0f;
    row[5] = std::numeric_limits<float>::quiet_NaN();
    if (text.size() == 1) row[7] = kInfinite;
    return row;
  };
  const auto found = RunSearch(options, 9, model).results;
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].ids, (std::vector<TokenId>{7, 3, 3}));
  EXPECT_EQ(found[0].score, 0.0f);
  EXPECT_EQ(found[1].ids, (std::vector<TokenId>{3, 3, 3}));  // +infinity is but a large number
}

TEST(BeamSearch, WithoutAnyTokenItFails) {
  auto search = BeamSearch::Create({}, 4);
  ASSERT_TRUE(search.ok());
  ASSERT_TRUE(search->Start(std::vector<TokenId>{1}).ok());
  const std::vector<float> row(4, -kInfinite);
  const Status status = search->Step(std::vector<std::span<const float>>{row});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "beam search: no token has a finite logit");
  EXPECT_TRUE(search->done());
  EXPECT_TRUE(search->Results().empty());
}

// Hypotheses found before remain.
TEST(BeamSearch, EndsWhereNothingCanFollow) {
  BeamOptions options;
  options.beams = options.num_return = 2;
  options.end_tokens = {0};
  const FakeModel model = [](const std::vector<TokenId>& text) {
    if (text.size() == 1) return std::vector<float>{2, 1, 0, 0, 0};
    return std::vector<float>(5, -kInfinite);
  };
  const SearchOutcome outcome = RunSearch(options, 5, model);
  EXPECT_EQ(outcome.steps, 2);
  ASSERT_EQ(outcome.results.size(), 1u);
  EXPECT_EQ(outcome.results[0].ids, (std::vector<TokenId>{0}));
}

TEST(BeamSearch, StartsAnewAndFindsTheSame) {
  const RandomCase c = MakeCase(5, BeamScoring::kHf);
  auto search = BeamSearch::Create(c.options, c.model.vocab);
  ASSERT_TRUE(search.ok());
  const auto once = RunSearch(*search, c.model, c.prompt).results;
  ASSERT_TRUE(search->Start(c.prompt).ok());  // and is left there
  const auto again = RunSearch(*search, c.model, c.prompt).results;
  ASSERT_EQ(once.size(), again.size());
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(once[i].ids, again[i].ids);
}

TEST(BeamSearch, ShowsLiveBeams) {
  BeamOptions options;
  options.beams = 2;
  auto search = BeamSearch::Create(options, 10);
  ASSERT_TRUE(search.ok());
  ASSERT_TRUE(search->Start(std::vector<TokenId>{1}).ok());
  const std::vector<float> row = kFlat({});
  ASSERT_TRUE(search->Step(std::vector<std::span<const float>>{row}).ok());
  EXPECT_EQ(search->Live(1).ids, (std::vector<TokenId>{1}));
  EXPECT_FLOAT_EQ(search->Live(1).score, -std::log(10.0f));
  EXPECT_TRUE(search->Live(2).ids.empty());
}

TEST(BeamSearch, RefusesOtherRows) {
  auto search = BeamSearch::Create({}, 10);
  ASSERT_TRUE(search.ok());
  const std::vector<float> row = kFlat({});
  const std::vector<std::span<const float>> one = {row}, two = {row, row};
  EXPECT_FALSE(search->Step(one).ok());  // not started
  EXPECT_FALSE(search->Start({}).ok());
  EXPECT_FALSE(search->Start(std::vector<TokenId>{10}).ok());
  ASSERT_TRUE(search->Start(std::vector<TokenId>{1}).ok());
  EXPECT_FALSE(search->Step(two).ok());
  EXPECT_FALSE(search->Step(std::vector<std::span<const float>>{one[0].first(9)}).ok());
  EXPECT_TRUE(search->Step(one).ok());
}

}  // namespace
}  // namespace kvant::test
