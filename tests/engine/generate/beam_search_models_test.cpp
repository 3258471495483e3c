// Beam search on models against Hugging Face transformers: ids, scores, log-probabilities and
// parents of a grid of options, on a model with and one without a sliding window, and on three with
// recurrent layers (tests/reference/make_beam_fixtures.py, which names the pinned version, and
// make_recurrent_beam_fixtures.py); with what encoder-decoders force and ban
// (make_beam_processor_fixtures.py), greedy search included; and on three encoder-decoders
// (make_pair_beam_fixtures.py), where each prompt has a source.
//
// Twice: with a runner that computes each beam's whole text from its first token, without a cache,
// and through forked sequences in one cache, all prompts of a case side by side.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/result.h"
#include "cpu/kv_format_list.h"
#include "formats/json.h"
#include "kvant/beam_generator.h"
#include "kvant/beam_search.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/tiny_model.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

constexpr uint64_t kCasesBytesMax = 1 << 20;
constexpr float kScoreTolerance = 1e-4f;

using formats::Json;
using LogitRows = std::vector<std::vector<float>>;

// Computes the logits of a request's live beams; remembers what followed a text, since the cases
// share prompts.
class WholeTextRunner {
 public:
  explicit WholeTextRunner(std::shared_ptr<const Model> model) {
    SessionOptions options;
    options.k_type = options.v_type = KvType::kF32;
    options.threads = 1;
    options.kv_cache = false;
    auto runner = Runner::Create(std::move(model), options);
    EXPECT_TRUE(runner.ok()) << runner.error().message;
    runner_ = std::move(*runner);
  }

  // Logits after the prompt: one row. `source` is empty where the model reads none.
  LogitRows Start(const std::vector<TokenId>& source, const std::vector<TokenId>& prompt) {
    source_ = source;
    texts_ = {prompt};
    return Rows();
  }

  // Beam i continues what beam parents[i] was with tokens[i]: a row for each.
  LogitRows Step(std::span<const int32_t> parents, std::span<const TokenId> tokens) {
    std::vector<std::vector<TokenId>> next;
    for (size_t i = 0; i < parents.size(); ++i) {
      next.push_back(texts_[static_cast<size_t>(parents[i])]);
      next.back().push_back(tokens[i]);
    }
    texts_ = std::move(next);
    return Rows();
  }

 private:
  LogitRows Rows() {
    LogitRows rows;
    for (const std::vector<TokenId>& text : texts_) {
      std::vector<float>& known = known_[{source_, text}];
      if (known.empty()) known = LogitsAfter(text);
      rows.push_back(known);
    }
    return rows;
  }

  std::vector<float> LogitsAfter(const std::vector<TokenId>& text) {
    const auto sequence =
        source_.empty() ? runner_->NewSequence() : runner_->NewSequenceOf(source_);
    EXPECT_TRUE(sequence.ok()) << sequence.error().message;
    EXPECT_TRUE(runner_->Append(*sequence, text).ok());
    const std::span<const float> logits = runner_->logits(*sequence);
    std::vector<float> copy(logits.begin(), logits.end());
    EXPECT_TRUE(runner_->FreeSequence(*sequence).ok());
    return copy;
  }

  std::unique_ptr<Runner> runner_;
  std::vector<TokenId> source_;
  std::vector<std::vector<TokenId>> texts_;
  std::map<std::pair<std::vector<TokenId>, std::vector<TokenId>>, std::vector<float>> known_;
};

// "forced_eos" is a token or a list of them.
std::vector<TokenId> TokensOf(const Json& value) {
  if (value.is_number()) return {value.get<TokenId>()};
  return value.get<std::vector<TokenId>>();
}

void TakeProcessors(const Json& entry, BeamOptions& options) {
  options.max_length = entry.value("max_length", int64_t{0});
  options.min_length = entry.value("min_length", int64_t{0});
  options.renormalize = entry.value("renormalize", false);
  if (entry.contains("forced_bos")) options.forced_bos = entry["forced_bos"].get<TokenId>();
  if (entry.contains("forced_eos")) options.forced_eos = TokensOf(entry["forced_eos"]);
  if (entry.contains("suppress")) options.suppress = TokensOf(entry["suppress"]);
  if (entry.contains("begin_suppress")) options.begin_suppress = TokensOf(entry["begin_suppress"]);
  if (!entry.contains("bad_words")) return;
  for (const Json& word : entry["bad_words"]) options.bad_words.push_back(TokensOf(word));
}

BeamOptions OptionsOf(const Json& entry) {
  BeamOptions options;
  options.beams = entry["beams"];
  options.groups = entry["groups"];
  options.diversity_penalty = entry["diversity_penalty"];
  options.length_penalty = entry["length_penalty"].get<float>();
  options.early_stopping = *ParseEarlyStopping(entry["early_stopping"].get<std::string>());
  options.end_tokens = entry["end_tokens"].get<std::vector<TokenId>>();
  options.num_return = entry["num_return"];
  options.max_new_tokens = entry["max_new_tokens"];
  options.min_new_tokens = entry["end_tokens"].empty() ? 0 : entry["min_new_tokens"].get<int>();
  options.repetition_penalty = entry["repetition_penalty"];
  options.no_repeat_ngram = entry["no_repeat_ngram"];
  TakeProcessors(entry, options);
  return options;
}

// The source of a case's prompt; empty where the model reads none.
std::vector<TokenId> SourceOf(const Json& entry, size_t prompt) {
  return entry.contains("sources") ? TokensOf(entry["sources"][prompt]) : std::vector<TokenId>();
}

std::vector<BeamHypothesis> Search(BeamSearch& search, WholeTextRunner& runner, const Json& entry,
                                   size_t prompt) {
  const std::vector<TokenId> tokens = TokensOf(entry["prompts"][prompt]);
  EXPECT_TRUE(search.Start(tokens).ok());
  LogitRows rows = runner.Start(SourceOf(entry, prompt), tokens);
  while (true) {
    const std::vector<std::span<const float>> views(rows.begin(), rows.end());
    const Status status = search.Step(views);
    EXPECT_TRUE(status.ok()) << status.error().message;
    if (!status.ok() || search.done()) return search.Results();
    rows = runner.Step(search.parents(), search.tokens());
  }
}

void ExpectNear(const std::vector<float>& values, const Json& expected, const std::string& where) {
  ASSERT_EQ(values.size(), expected.size()) << where;
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i].get<float>(), kScoreTolerance) << where << " token " << i;
  }
}

void ExpectSame(const std::vector<BeamHypothesis>& found, const Json& expected,
                const std::string& where) {
  ASSERT_EQ(found.size(), expected.size()) << where;
  for (size_t i = 0; i < found.size(); ++i) {
    const Json& other = expected[i];
    EXPECT_EQ(found[i].ids, other["ids"].get<std::vector<TokenId>>()) << where << " rank " << i;
    const float score = other["score"];
    EXPECT_NEAR(found[i].score, score, kScoreTolerance * std::max(1.0f, std::abs(score)))
        << where << " rank " << i;
    if (!other.contains("parents")) continue;
    EXPECT_EQ(found[i].parents, other["parents"].get<std::vector<int32_t>>()) << where;
    ExpectNear(found[i].log_probs, other["log_probs"], where);
  }
}

// The score is that of the log-probabilities that are returned with it.
void ExpectScoreOfLogProbs(const BeamHypothesis& found, const BeamOptions& options,
                           const std::string& where) {
  double sum = 0;
  for (const float log_prob : found.log_probs) sum += static_cast<double>(log_prob);
  const double length = static_cast<double>(found.ids.size());
  const double score = sum / std::pow(length, static_cast<double>(*options.length_penalty));
  EXPECT_NEAR(static_cast<double>(found.score), score, 1e-4 * std::max(1.0, std::abs(score)))
      << where;
}

struct ModelOfCases {
  const char* test;   // its name
  const char* model;  // in the cases
  const char* cases_file = "cases.json";
  bool seeded = false;  // of tests/reference/seeded
  int cases = 100;      // at least
};

constexpr ModelOfCases kModels[] = {{"Mha", "mha"},
                                    {"GqaWindow", "gqa-window"},
                                    {"Processors", "mha", "processors.json", false, 200},
                                    {"Lfm2", "lfm2", "recurrent.json", true, 30},
                                    {"Mamba2", "mamba2", "recurrent.json", true, 30},
                                    {"Qwen3next", "qwen3next", "recurrent.json", true, 30},
                                    {"T5", "t5", "pairs.json", true, 75},
                                    {"Bart", "bart", "pairs.json", true, 75},
                                    {"M2m100", "m2m100", "pairs.json", true, 75}};

class BeamSearchModels : public testing::TestWithParam<ModelOfCases> {
 protected:
  void SetUp() override {
    const std::string folder = SourcePath("tests/reference/beam_search/");
    auto read = formats::ReadJson(folder + GetParam().cases_file, kCasesBytesMax);
    ASSERT_TRUE(read.ok()) << read.error().message;
    for (const Json& entry : (*read)["cases"]) {
      if (entry["model"] == GetParam().model) cases_.push_back(entry);
    }
    ASSERT_FALSE(cases_.empty());
    if (GetParam().seeded) {
      const bool pair = cases_.front().contains("sources");
      model_ = SeededModel((pair ? kSeededPairs : "") + std::string(GetParam().model)).Open();
    } else {
      auto opened = Model::Open(folder + GetParam().model + ".gguf");
      ASSERT_TRUE(opened.ok()) << opened.error().message;
      model_ = *opened;
    }
    ASSERT_NE(model_, nullptr);
  }

  std::vector<Json> cases_;
  std::shared_ptr<const Model> model_;
};

TEST_P(BeamSearchModels, FindWhatTransformersFinds) {
  WholeTextRunner runner(model_);
  int count = 0;
  for (const Json& entry : cases_) {
    const BeamOptions options = OptionsOf(entry);
    auto search = BeamSearch::Create(options, model_->vocab_size());
    ASSERT_TRUE(search.ok()) << search.error().message;
    for (size_t i = 0; i < entry["prompts"].size(); ++i) {
      Json shown = entry;
      shown.erase("results");
      const std::string where = shown.dump() + " prompt " + std::to_string(i);
      const auto found = Search(*search, runner, entry, i);
      ExpectSame(found, entry["results"][i], where);
      for (const BeamHypothesis& hypothesis : found) {
        ExpectScoreOfLogProbs(hypothesis, options, where);
      }
      ++count;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(count, GetParam().cases);
}

TEST_P(BeamSearchModels, FindTheSameThroughSharedCachesInBatches) {
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  options.threads = 2;
  options.sequences = 64;
  options.kv_check = options.kv_poison = true;
  auto runner = Runner::Create(model_, options);
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  int count = 0;
  for (const Json& entry : cases_) {
    Json shown = entry;
    shown.erase("results");
    std::vector<std::vector<TokenId>> prompts;
    std::vector<std::vector<TokenId>> sources;
    uint64_t prompt_tokens = 0;
    for (size_t i = 0; i < entry["prompts"].size(); ++i) {
      prompts.push_back(TokensOf(entry["prompts"][i]));
      prompt_tokens += prompts.back().size();
      if (entry.contains("sources")) sources.push_back(SourceOf(entry, i));
    }
    const RunnerStats before = (*runner)->stats();
    uint64_t rows = 0;
    BeamGenerateOptions generate{.search = OptionsOf(entry), .on_step = {}, .cancel = nullptr};
    generate.sources = sources;
    generate.on_step = [&rows](size_t, const BeamSearch& search) {
      rows += static_cast<uint64_t>(search.rows());
      return BeamStep::kGoOn;
    };
    auto found = GenerateBeams(**runner, prompts, generate);
    ASSERT_TRUE(found.ok()) << found.error().message;
    for (size_t i = 0; i < prompts.size(); ++i) {
      ExpectSame((*found)[i].hypotheses, entry["results"][i],
                 shown.dump() + " prompt " + std::to_string(i));
      ++count;
    }
    // The prompt once, then a row for each live beam; and nothing is left.
    const RunnerStats after = (*runner)->stats();
    EXPECT_EQ(after.tokens_processed - before.tokens_processed, prompt_tokens + rows);
    EXPECT_EQ(after.sequences, 0);
    EXPECT_TRUE(after.kv_bytes_used == 0 || !sources.empty());
    EXPECT_TRUE((*runner)->Check().ok());
    // Each source at most once, whatever the beams; it stays for others who ask for it.
    EXPECT_LE(after.encoder_passes - before.encoder_passes, sources.size());
    if (HasFailure()) return;
  }
  EXPECT_GT(count, GetParam().cases);
}

INSTANTIATE_TEST_SUITE_P(Beams, BeamSearchModels, testing::ValuesIn(kModels),
                         [](const auto& model) { return std::string(model.param.test); });

}  // namespace
}  // namespace kvant::test
