// Tests what a beam's logits become before a search adds them up, sampling, and the limits of
// options. Log-probabilities are compared with long double, draws with the expected probabilities.
#include "kvant/beam_log_probs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "kvant/beam_search.h"

namespace kvant::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Logits that are log-probabilities already.
const std::vector<double> kProbabilities = {0.4, 0.25, 0.15, 0.1, 0.06, 0.04};

std::vector<float> Logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// The log-probabilities after a text whose last `generated` tokens are not the prompt's.
std::vector<float> Computed(const BeamOptions& options, const std::vector<float>& logits,
                            const std::vector<TokenId>& tokens = {1}, int64_t generated = 0) {
  BeamLogProbs log_probs(options, static_cast<int32_t>(logits.size()));
  LogitChain stages = log_probs.stages();
  const auto row = log_probs.Process(logits,
                                     {.tokens = tokens,
                                      .prompt = std::ssize(tokens) - generated,
                                      .generated = generated,
                                      .generated_max = NewTokensMax(options, tokens.size())},
                                     stages);
  return {row->begin(), row->end()};
}

BeamOptions TwoBeams() {
  BeamOptions options;
  options.beams = 2;
  return options;
}

// The ids that are left.
std::vector<TokenId> Possible(const std::vector<float>& row) {
  std::vector<TokenId> ids;
  for (size_t id = 0; id < row.size(); ++id) {
    if (row[id] > -kInfinity) ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

TEST(BeamLogProbs, AreThoseOfSoftmax) {
  const std::vector<float> logits = {3.5f, -2.0f, 0.0f, 7.25f, 7.0f, -kInfinity};
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
  const std::vector<float> row = Computed({}, logits);
  for (size_t i = 0; i < 5; ++i) {
    const auto exact = static_cast<long double>(logits[i]) - std::log(sum);
    EXPECT_NEAR(row[i], static_cast<float>(exact), 1e-6f);
  }
  EXPECT_EQ(row[5], -kInfinity);
}

// After the softmax for hf, so that the others keep their probabilities; before it elsewhere, and
// in greedy search.
TEST(BeamLogProbs, PenaltiesComeAfterTheSoftmaxOnlyForBeamsOfHf) {
  BeamOptions options = TwoBeams();
  options.repetition_penalty = 2.0f;
  options.suppress = {1};
  const std::vector<float> logits = Logs(kProbabilities);
  const std::vector<float> hf = Computed(options, logits, {0, 0, 5});
  EXPECT_FLOAT_EQ(hf[0], 2.0f * logits[0]);
  EXPECT_EQ(hf[1], -kInfinity);
  EXPECT_FLOAT_EQ(hf[2], logits[2]);
  EXPECT_FLOAT_EQ(hf[5], 2.0f * logits[5]);
  const auto expect_normalized = [&] {
    const std::vector<float> row = Computed(options, logits, {0, 0, 5});
    const double sum = 0.16 + 0.15 + 0.1 + 0.06 + 0.0016;  // 0 and 5 squared, 1 gone
    EXPECT_NEAR(row[0], std::log(0.16 / sum), 1e-6);
    EXPECT_EQ(row[1], -kInfinity);
    EXPECT_NEAR(row[2], std::log(0.15 / sum), 1e-6);
  };
  options.renormalize = true;
  expect_normalized();
  options.renormalize = false;
  options.ct2_prompt_in_result = true;  // else ct2 looks at no token of the prompt
  for (const BeamScoring scoring : {BeamScoring::kCt2, BeamScoring::kWhisper, BeamScoring::kOga}) {
    options.scoring = scoring;
    expect_normalized();
  }
  options.scoring = BeamScoring::kHf;
  options.beams = 1;
  expect_normalized();
}

TEST(BeamLogProbs, RepeatedNgramsAreBanned) {
  BeamOptions options;
  const std::vector<float> logits = Logs(kProbabilities);
  const std::vector<TokenId> history = {1, 2, 3, 1, 2, 4, 1, 2};
  const std::vector<std::vector<TokenId>> left = {
      {0, 1, 2, 3, 4, 5}, {0, 5}, {0, 1, 2, 5}, {0, 1, 2, 5}, {0, 1, 2, 3, 4, 5}};
  for (int32_t n = 0; n < 5; ++n) {
    options.no_repeat_ngram = n;
    EXPECT_EQ(Possible(Computed(options, logits, history)), left[static_cast<size_t>(n)]) << n;
  }
  options.no_repeat_ngram = 3;
  EXPECT_EQ(Possible(Computed(options, logits, {1, 2})).size(), logits.size());
}

TEST(BeamLogProbs, NoEndBeforeTheLeastLength) {
  BeamOptions options;
  options.end_tokens = {0, 3};
  options.min_new_tokens = 2;
  const std::vector<float> logits = Logs(kProbabilities);
  EXPECT_EQ(Possible(Computed(options, logits, {7, 1}, 1)), (std::vector<TokenId>{1, 2, 4, 5}));
  EXPECT_EQ(Possible(Computed(options, logits, {7, 1, 1}, 2)).size(), logits.size());
  options.min_new_tokens = 0;
  options.min_length = 3;  // the prompt included
  EXPECT_EQ(Possible(Computed(options, logits, {7, 1}, 1)), (std::vector<TokenId>{1, 2, 4, 5}));
  EXPECT_EQ(Possible(Computed(options, logits, {7, 1, 1}, 1)).size(), logits.size());
}

// A word is banned where its last token would complete it; see beam_options.h on what hf leaves
// out.
TEST(BeamLogProbs, BadWordsAreNotCompleted) {
  const std::vector<float> logits = Logs(kProbabilities);
  BeamOptions options = TwoBeams();
  options.end_tokens = {0};
  options.bad_words = {{0}, {3}, {1, 2}, {4, 1, 5}};
  using Ids = std::vector<TokenId>;
  const auto left = [&](const Ids& text) { return Possible(Computed(options, logits, text)); };
  EXPECT_EQ(left({2, 1}), (Ids{0, 1, 4, 5}));
  EXPECT_EQ(left({1, 2}), (Ids{0, 1, 2, 4, 5}));
  EXPECT_EQ(left({2, 4, 1}), (Ids{0, 1, 4}));
  EXPECT_EQ(left({4, 1}), (Ids{0, 1, 4, 5}));  // not the last one: it has three tokens
  EXPECT_EQ(left({1}), (Ids{0, 1, 2, 4, 5}));
  options.scoring = BeamScoring::kCt2;
  EXPECT_EQ(left({4, 1}), (Ids{1, 2, 4, 5}));  // a prompt is no text
  options.ct2_prompt_in_result = true;         // but for its first token
  EXPECT_EQ(left({2, 4, 1}), (Ids{1, 4}));
  EXPECT_EQ(left({2, 1}), (Ids{1, 4, 5}));
}

// A forced token has log-probability 0, whatever was banned before; it can be banned afterwards.
TEST(BeamLogProbs, ForcedTokensAreCertain) {
  const std::vector<float> logits = Logs(kProbabilities);
  BeamOptions options = TwoBeams();
  options.end_tokens = {4, 5};
  options.bad_words = {{2}};
  options.min_new_tokens = 3;
  options.max_new_tokens = 3;
  options.forced_bos = 2;
  options.forced_eos = {4, 5};
  options.suppress = {5};
  options.begin_suppress = {2};
  const auto row = [&](const std::vector<TokenId>& text, int64_t generated) {
    return Computed(options, logits, text, generated);
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(Possible(row({1}, 0)), (Ids{2}));
  EXPECT_EQ(row({1}, 0)[2], 0.0f);
  options.bad_words.clear();
  EXPECT_EQ(Possible(row({1, 2}, 1)), (Ids{0, 1, 3}));  // 2 is not the second, then
  EXPECT_EQ(Possible(row({1, 1}, 0)), (Ids{0, 1, 3}));  // not forced after a longer prompt
  EXPECT_EQ(Possible(row({1, 1, 2}, 1)), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(Possible(row({1, 2, 3}, 2)), (Ids{4}));
  EXPECT_EQ(row({1, 2, 3}, 2)[4], 0.0f);
}

TEST(BeamLogProbs, FiltersKeepTheLikeliest) {
  BeamOptions options = TwoBeams();
  options.sample = true;
  const std::vector<float> logits = Logs(kProbabilities);
  const auto left = [&] { return Possible(Computed(options, logits)).size(); };
  EXPECT_EQ(left(), 6u);
  options.top_k = 3;
  EXPECT_EQ(left(), 3u);
  options.top_p = 0.7f;  // 0.4 and 0.25 of the 0.8 that are left
  EXPECT_EQ(left(), 2u);
  options.top_k = 0;
  EXPECT_EQ(left(), 3u);
  options.top_p = 0.0f;  // never fewer than two, or than the end tokens and one
  EXPECT_EQ(left(), 2u);
  options.beams = 1;
  EXPECT_EQ(left(), 1u);
  options.beams = 2;
  options.end_tokens = {0, 1, 2};
  EXPECT_EQ(left(), 4u);
  options.top_p = 1.0f;
  options.top_k = 1;
  EXPECT_EQ(left(), 4u);
  options.temperature = 0.5f;
  EXPECT_FLOAT_EQ(Computed(options, logits)[1], 2 * logits[1]);
}

TEST(BeamLogProbs, EqualTokensAreKeptByLowerId) {
  BeamOptions options;
  options.sample = true;
  options.top_k = 3;
  const std::vector<float> flat(7, 0.0f);
  EXPECT_EQ(Possible(Computed(options, flat)), (std::vector<TokenId>{0, 1, 2}));
  options.top_k = 0;
  options.top_p = 0.5f;  // four of seven reach it
  EXPECT_EQ(Possible(Computed(options, flat)), (std::vector<TokenId>{0, 1, 2, 3}));
}

// ---- Sampling -----------------------------------------------------------------------------------

// The tokens of the one step of a search.
std::vector<BeamHypothesis> OneStep(BeamOptions options, uint64_t seed) {
  options.sample = true;
  options.seed = seed;
  options.max_new_tokens = 1;
  const std::vector<float> logits = Logs(kProbabilities);
  auto search = BeamSearch::Create(options, static_cast<int32_t>(logits.size()));
  EXPECT_TRUE(search.ok());
  EXPECT_TRUE(search->Start(std::vector<TokenId>{1}).ok());
  EXPECT_TRUE(search->Step(std::vector<std::span<const float>>{logits}).ok());
  return search->Results();
}

constexpr int kDraws = 20000;
constexpr double kFrequencyError = 0.015;  // more than four standard deviations of any frequency

TEST(BeamSampling, TheFirstDrawFollowsTheProbabilities) {
  for (const float temperature : {1.0f, 2.0f}) {
    BeamOptions options;
    options.temperature = temperature;
    std::map<TokenId, int> counts;
    for (int i = 0; i < kDraws; ++i) ++counts[OneStep(options, static_cast<uint64_t>(i))[0].ids[0]];
    double total = 0;
    for (const double p : kProbabilities) total += std::pow(p, 1 / temperature);
    for (size_t i = 0; i < kProbabilities.size(); ++i) {
      const double expected = std::pow(kProbabilities[i], 1 / temperature) / total;
      EXPECT_NEAR(static_cast<double>(counts[static_cast<TokenId>(i)]) / kDraws, expected,
                  kFrequencyError);
    }
  }
}

// A single beam goes on with what was drawn first, whatever was drawn beside it.
TEST(BeamSampling, TheSecondDrawFollowsTheProbabilitiesToo) {
  const std::vector<float> logits = Logs(kProbabilities);
  BeamOptions options;
  options.sample = true;
  options.max_new_tokens = 2;
  std::map<TokenId, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    options.seed = static_cast<uint64_t>(i);
    auto search = BeamSearch::Create(options, static_cast<int32_t>(logits.size()));
    ASSERT_TRUE(search.ok());
    ASSERT_TRUE(search->Start(std::vector<TokenId>{1}).ok());
    ASSERT_TRUE(search->Step(std::vector<std::span<const float>>{logits}).ok());
    ++counts[search->tokens()[0]];
  }
  for (size_t i = 0; i < kProbabilities.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(counts[static_cast<TokenId>(i)]) / kDraws, kProbabilities[i],
                kFrequencyError);
  }
}

TEST(BeamSampling, BeamsAreDrawnWithoutReplacement) {
  BeamOptions options;
  options.beams = options.num_return = 2;
  std::map<std::pair<TokenId, TokenId>, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    const auto found = OneStep(options, static_cast<uint64_t>(i));
    ASSERT_EQ(found.size(), 2u);
    EXPECT_GE(found[0].score, found[1].score);
    ++counts[{found[0].ids[0], found[1].ids[0]}];
  }
  for (size_t i = 0; i < kProbabilities.size(); ++i) {
    for (size_t j = i + 1; j < kProbabilities.size(); ++j) {
      const double p = kProbabilities[i], q = kProbabilities[j];
      const double expected = p * q / (1 - p) + q * p / (1 - q);
      const std::pair pair = {static_cast<TokenId>(i), static_cast<TokenId>(j)};
      EXPECT_NEAR(static_cast<double>(counts[pair]) / kDraws, expected, kFrequencyError);
    }
  }
}

TEST(BeamSampling, ASeedRepeatsItself) {
  BeamOptions options;
  options.beams = options.num_return = 2;
  options.sample = true;
  options.seed = 17;
  options.max_new_tokens = 8;
  const std::vector<float> logits = Logs(kProbabilities);
  auto search = BeamSearch::Create(options, static_cast<int32_t>(logits.size()));
  ASSERT_TRUE(search.ok());
  std::vector<std::vector<BeamHypothesis>> runs;
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(search->Start(std::vector<TokenId>{1}).ok());
    while (!search->done()) {
      const std::vector<std::span<const float>> rows(static_cast<size_t>(search->rows()), logits);
      ASSERT_TRUE(search->Step(rows).ok());
    }
    runs.push_back(search->Results());
  }
  ASSERT_EQ(runs[0].size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(runs[0][i].ids, runs[1][i].ids);
}

// ---- Options ------------------------------------------------------------------------------------

std::string Refusal(const std::function<void(BeamOptions&)>& change) {
  BeamOptions options;
  options.beams = 4;
  options.end_tokens = {1};
  change(options);
  const Status status = CheckBeamOptions(options, 10);
  return status.ok() ? "" : status.error().message;
}

TEST(BeamOptions, AreCheckedBeforeAnythingRuns) {
  using O = BeamOptions;
  EXPECT_EQ(Refusal([](O&) {}), "");
  EXPECT_EQ(Refusal([](O& o) { o.num_return = 5; }), "num-return: expected 1 to 4, found 5");
  EXPECT_EQ(Refusal([](O& o) { o.groups = 3; }),
            "beam-groups: expected a divisor of 4 beams, found 3");
  EXPECT_EQ(Refusal([](O& o) { o.groups = 2; }),
            "diversity-penalty: expected a number above 0 with groups, found 0");
  EXPECT_EQ(Refusal([](O& o) { o.diversity_penalty = 1; }),
            "diversity-penalty: expected 0 without groups, found 1");
  EXPECT_EQ(Refusal([](O& o) { o.end_tokens = {10}; }),
            "end tokens: token 10 is outside the vocabulary of 10");
  EXPECT_EQ(Refusal([](O& o) { o.end_tokens.assign(10, 1); }),
            "beam search: expected a vocabulary of at least 11, found 10 tokens");
  EXPECT_EQ(Refusal([](O& o) { o.length_penalty = kInfinity; }),
            "length-penalty: expected a number, found inf");
  EXPECT_EQ(Refusal([](O& o) { o.max_new_tokens = 0; }),
            "max-new-tokens: expected 1 to 268435455, found 0");
  EXPECT_EQ(Refusal([](O& o) { o.min_new_tokens = 21; }),
            "min-new-tokens: expected 0 to 20, found 21");
  EXPECT_EQ(Refusal([](O& o) { o.max_length = -1; }),
            "max-length: expected 0 to 268435455, found -1");
  EXPECT_EQ(Refusal([](O& o) {
              o.max_length = 9;
              o.min_length = 10;
            }),
            "min-length: expected 0 to 9, found 10");
  EXPECT_EQ(Refusal([](O& o) { o.patience = 2; }),
            "patience: expected 1 without beam-scoring ct2 or whisper, found 2");
  EXPECT_EQ(Refusal([](O& o) {
              o.scoring = BeamScoring::kOga;
              o.early_stopping = EarlyStopping::kNever;
            }),
            "early-stopping never: expected beam-scoring hf, found another");
  EXPECT_EQ(Refusal([](O& o) {
              o.scoring = BeamScoring::kWhisper;
              o.sample = true;
            }),
            "sampling with beams: expected beam-scoring hf, found another");
  EXPECT_NE(Refusal([](O& o) { o.temperature = 0; }), "");
  EXPECT_NE(Refusal([](O& o) { o.top_p = 1.5f; }), "");
  EXPECT_NE(Refusal([](O& o) { o.repetition_penalty = 0; }), "");
}

TEST(BeamOptions, OfProcessorsAreChecked) {
  using O = BeamOptions;
  EXPECT_EQ(Refusal([](O& o) {
              o.bad_words = {{3}, {}};
            }),
            "bad-words: expected a token at least, found none");
  EXPECT_EQ(Refusal([](O& o) {
              o.bad_words = {{3, 10}};
            }),
            "bad-words: token 10 is outside the vocabulary of 10");
  EXPECT_EQ(Refusal([](O& o) { o.forced_bos = -1; }),
            "forced-bos: token -1 is outside the vocabulary of 10");
  EXPECT_EQ(Refusal([](O& o) {
              o.forced_eos = {1, 10};
            }),
            "forced-eos: token 10 is outside the vocabulary of 10");
  EXPECT_EQ(Refusal([](O& o) { o.suppress = {10}; }),
            "suppress: token 10 is outside the vocabulary of 10");
  EXPECT_EQ(Refusal([](O& o) { o.begin_suppress = {10}; }),
            "begin-suppress: token 10 is outside the vocabulary of 10");
  EXPECT_EQ(Refusal([](O& o) {
              o.forced_bos = 3;
              o.suppress = {2, 3};
            }),
            "suppress: expected tokens that are not forced, found 3, which forced-bos forces");
  EXPECT_EQ(Refusal([](O& o) {
              o.forced_eos = {1, 2};
              o.suppress = {2, 1};
            }),
            "suppress: expected tokens that are not forced, found 1, which forced-eos forces");
  EXPECT_EQ(Refusal([](O& o) {
              o.forced_eos = {1, 2};
              o.suppress = {1};
            }),
            "");
  const auto refused_by_ct2 = [](const std::function<void(O&)>& change) {
    return Refusal([&](O& o) {
      o.scoring = BeamScoring::kCt2;
      change(o);
    });
  };
  EXPECT_EQ(refused_by_ct2([](O& o) { o.forced_bos = 3; }),
            "forced-bos: expected beam-scoring hf, found another");
  EXPECT_EQ(refused_by_ct2([](O& o) { o.forced_eos = {3}; }),
            "forced-eos: expected beam-scoring hf, found another");
  EXPECT_EQ(refused_by_ct2([](O& o) { o.renormalize = true; }),
            "renormalize: expected beam-scoring hf, found another");
  EXPECT_EQ(refused_by_ct2([](O& o) {
              o.suppress = o.begin_suppress = {3};
              o.bad_words = {{4, 5}};
              o.min_length = 3;
            }),
            "");
}

TEST(BeamOptions, AreReadByName) {
  EXPECT_EQ(*ParseBeamScoring("whisper"), BeamScoring::kWhisper);
  EXPECT_EQ(*ParseEarlyStopping("never"), EarlyStopping::kNever);
  EXPECT_EQ(ParseBeamScoring("x").error().message,
            "beam-scoring: expected hf, ct2, whisper or oga, found 'x'");
  EXPECT_FALSE(ParseEarlyStopping("").ok());
}

}  // namespace
}  // namespace kvant::test
