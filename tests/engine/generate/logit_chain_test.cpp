// The chain of logit stages: its order, and stages with a state, which follow a text or a beam
// wherever it goes. A stage that keeps a state gives the results of one that computes the state
// from the whole text each time.
#include "kvant/logit_chain.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kvant/batch_generator.h"
#include "kvant/generator.h"
#include "tests/engine/generate/beam_requests.h"

namespace kvant::test {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// Tells texts apart, and a prompt's tokens from the text's.
struct TextState {
  uint32_t hash = 17;

  void Add(TokenId token, TokenFrom from) {
    const auto number = static_cast<uint32_t>(token);
    hash = from == TokenFrom::kPrompt ? hash * 7 + number : hash * 31 + number + 5;
  }
  // Bans a third of the tokens, but the end token never.
  void Ban(std::span<float> row) const {
    for (size_t id = 3; id < row.size(); ++id) {
      if ((id + hash) % 3 == 0) row[id] = kBanned;
    }
  }
};

class RememberingStage final : public CopiedLogitStage<RememberingStage> {
 public:
  void Accept(TokenId token, TokenFrom from) override { state_.Add(token, from); }
  Status Apply(const LogitText&, std::span<float> row) override {
    state_.Ban(row);
    return {};
  }

 private:
  TextState state_;
};

class ReadingStage final : public CopiedLogitStage<ReadingStage> {
 public:
  Status Apply(const LogitText& text, std::span<float> row) override {
    EXPECT_EQ(std::ssize(text.tokens), text.prompt + text.generated);
    TextState state;
    for (int64_t i = 0; i < std::ssize(text.tokens); ++i) {
      const bool given = i < text.prompt;
      state.Add(text.tokens[static_cast<size_t>(i)], given ? TokenFrom::kPrompt : TokenFrom::kText);
    }
    state.Ban(row);
    return {};
  }
  bool reads_tokens() const override { return true; }
  bool keeps_state() const override { return false; }
};

// No token is left behind so many of the text.
class LimitStage final : public CopiedLogitStage<LimitStage> {
 public:
  LimitStage(int64_t count, bool ends) : left_(count), ends_(ends) {}

  void Accept(TokenId, TokenFrom from) override { left_ -= from == TokenFrom::kText ? 1 : 0; }
  Status Apply(const LogitText&, std::span<float> row) override {
    if (left_ == 0) std::fill(row.begin(), row.end(), kBanned);
    return {};
  }
  bool ends_text() const override { return ends_; }

 private:
  int64_t left_;
  bool ends_;
};

class FailingStage final : public CopiedLogitStage<FailingStage> {
 public:
  Status Apply(const LogitText& text, std::span<float>) override {
    if (text.generated < 3) return {};
    return MakeError(ErrorCode::kNotSupported, "three tokens are enough");
  }
};

template <class Stage, class... Args>
LogitOptions With(Args... args) {
  LogitOptions options;
  options.stages.push_back(
      [args...](const LogitStageSetup& setup) -> Result<std::unique_ptr<LogitStage>> {
        EXPECT_EQ(setup.vocab_size, kTinyVocab);
        return std::unique_ptr<LogitStage>(std::make_unique<Stage>(args...));
      });
  return options;
}

const std::shared_ptr<const Model>& TinyChainModel() {
  static const auto model = OpenTiny({}, OwnGemm());
  return model;
}

SamplingOptions Hot(uint64_t seed) {
  SamplingOptions options;
  options.temperature = 1.3f;
  options.top_k = 0;
  options.seed = seed;
  return options;
}

// ---- Texts --------------------------------------------------------------------------------------

// Two samples each of three prompts, on a runner with so many bytes.
std::vector<BatchText> BatchWith(const LogitOptions& logits, uint64_t bytes_max,
                                 int64_t* processed) {
  SessionOptions session = OneThread(KvType::kF32, 6);
  session.kv_bytes_max = bytes_max;
  auto runner = OpenRunner(TinyChainModel(), session);
  std::vector<BatchRequest> requests;
  for (uint32_t i = 0; i < 3; ++i) requests.push_back({RandomTokens(20 + 30 * i, i), 2});
  BatchOptions options;
  options.sampling = Hot(9);
  options.max_tokens = 90;
  options.logits = logits;
  options.ignore_eos = true;
  std::vector<BatchText> texts(6);
  ExpectOk(GenerateBatch(*runner, runner->model().tokenizer(), requests, options,
                         [&](const BatchText& text) {
                           texts[text.request * 2 + static_cast<size_t>(text.sample)] = text;
                           return true;
                         }));
  *processed = runner->stats().tokens_processed;
  return texts;
}

TEST(LogitChain, StatesFollowTheTextsOfABatchAndThoseThatWaitForMemory) {
  int64_t plenty = 0;
  int64_t tight = 0;
  const auto expected = BatchWith(With<ReadingStage>(), 0, &plenty);
  const auto found = BatchWith(With<RememberingStage>(), 0, &plenty);
  const auto waited = BatchWith(With<RememberingStage>(), 200'000, &tight);
  EXPECT_GT(tight, plenty);  // some were computed again
  const auto without = BatchWith({}, 0, &plenty);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].ids.size(), 90u);
    EXPECT_EQ(found[i].ids, expected[i].ids) << i;
    EXPECT_EQ(waited[i].ids, expected[i].ids) << i;
    EXPECT_NE(without[i].ids, expected[i].ids) << i;
  }
}

// Guesses tokens of a known text, every third one wrong.
class HalfRightDraft final : public Draft {
 public:
  explicit HalfRightDraft(std::vector<TokenId> known) : known_(std::move(known)) {}

  Result<std::span<const TokenId>> Propose(std::span<const TokenId> text, int64_t count) override {
    proposal_.clear();
    const size_t end = std::min(text.size() + static_cast<size_t>(count), known_.size());
    for (size_t i = text.size(); i < end; ++i) {
      proposal_.push_back(i % 3 == 0 ? (known_[i] + 1) % 250 : known_[i]);
    }
    return std::span<const TokenId>(proposal_);
  }

 private:
  std::vector<TokenId> known_;
  std::vector<TokenId> proposal_;
};

struct ChainText {
  Result<Generation> generation;
  int64_t length = 0;  // of the sequence
};

ChainText TextWith(GenerateOptions options, const LogitOptions& logits) {
  auto session = OpenSession(TinyChainModel(), OneThread(KvType::kF32, 1));
  auto sampler = Sampler::Create(Hot(4), TinyChainModel()->vocab_size());
  options.logits = logits;
  options.ignore_eos = true;
  auto text =
      Generate(*session, TinyChainModel()->tokenizer(), *sampler, RandomTokens(30, 8), options, {});
  EXPECT_FALSE(sampler->logits().keeps_state());  // the stages went with the request
  EXPECT_FALSE(sampler->logits().reads_tokens());
  return {std::move(text), session->length()};
}

TEST(LogitChain, WrongGuessesDoNotDisturbAState) {
  GenerateOptions options;
  options.max_tokens = 120;
  const auto expected = TextWith(options, With<ReadingStage>());
  ASSERT_TRUE(expected.generation.ok());
  std::vector<TokenId> known = RandomTokens(30, 8);
  const std::vector<TokenId>& ids = expected.generation->ids;
  known.insert(known.end(), ids.begin(), ids.end());
  options.draft = std::make_shared<HalfRightDraft>(known);
  const auto found = TextWith(options, With<RememberingStage>());
  ASSERT_TRUE(found.generation.ok());
  EXPECT_EQ(found.generation->ids, ids);
  EXPECT_GT(found.generation->accepted_tokens, 20);
  EXPECT_GT(found.generation->drafted_tokens, found.generation->accepted_tokens + 20);
}

TEST(LogitChain, APartOfThePromptMayCountAsText) {
  GenerateOptions options;
  options.max_tokens = 40;
  const auto all = TextWith(options, With<RememberingStage>());
  options.processors_prompt = 12;
  const auto part = TextWith(options, With<RememberingStage>());
  const auto expected = TextWith(options, With<ReadingStage>());
  EXPECT_EQ(part.generation->ids, expected.generation->ids);
  EXPECT_NE(part.generation->ids, all.generation->ids);
}

TEST(LogitChain, ATextEndsWhereAStageLeavesNoToken) {
  GenerateOptions options;
  options.max_tokens = 40;
  const auto whole = TextWith(options, {});
  std::vector<TokenId> known = RandomTokens(30, 8);
  known.insert(known.end(), whole.generation->ids.begin(), whole.generation->ids.end());
  for (const bool drafts : {false, true}) {
    for (const int64_t count : {0, 1, 7, 12, 13, 14}) {
      options.draft = drafts ? std::make_shared<HalfRightDraft>(known) : nullptr;
      const auto text = TextWith(options, With<LimitStage>(count, true));
      ASSERT_TRUE(text.generation.ok());
      EXPECT_EQ(text.generation->finish_reason, FinishReason::kNoToken);
      EXPECT_EQ(text.generation->ids,
                std::vector(whole.generation->ids.begin(), whole.generation->ids.begin() + count));
      EXPECT_EQ(text.generation->decode_tokens, count);
      EXPECT_EQ(text.length, 30 + count);
    }
  }
  EXPECT_STREQ(FinishReasonName(FinishReason::kNoToken), "no_token");
  const auto refused = TextWith(options, With<LimitStage>(5, false));
  ASSERT_FALSE(refused.generation.ok());
  EXPECT_EQ(refused.generation.error().message, "sampling: no token has a finite logit");
}

TEST(LogitChain, ErrorsOfStagesEndTexts) {
  const auto failed = TextWith({}, With<FailingStage>());
  ASSERT_FALSE(failed.generation.ok());
  EXPECT_EQ(failed.generation.error().message, "three tokens are enough");
  LogitOptions none;
  none.stages.push_back([](const LogitStageSetup&) -> Result<std::unique_ptr<LogitStage>> {
    return MakeError(ErrorCode::kInvalid, "no such grammar");
  });
  const auto refused = TextWith({}, none);
  ASSERT_FALSE(refused.generation.ok());
  EXPECT_EQ(refused.generation.error().message, "no such grammar");
  auto runner = OpenRunner(TinyChainModel(), OneThread(KvType::kF32, 3));
  const std::vector<std::vector<TokenId>> prompts = {RandomTokens(9, 1)};
  const std::pair<LogitOptions, std::string> searches[] = {
      {With<FailingStage>(), "three tokens are enough"}, {none, "no such grammar"}};
  for (const auto& [logits, message] : searches) {
    const auto found = GenerateBeams(*runner, prompts, {.search = Beams(3, 20), .logits = logits});
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().message, message);
    EXPECT_EQ(runner->stats().sequences, 0);
  }
}

// ---- Order --------------------------------------------------------------------------------------

// Sees what the stages before it left, and makes one token the likeliest by far.
class WatchingStage final : public CopiedLogitStage<WatchingStage> {
 public:
  explicit WatchingStage(std::vector<float>* seen) : seen_(seen) {}
  Status Apply(const LogitText&, std::span<float> row) override {
    seen_->assign(row.begin(), row.end());
    row[9] = 50;
    row[8] = std::numeric_limits<float>::quiet_NaN();
    return {};
  }

 private:
  std::vector<float>* seen_;
};

TEST(LogitChain, StagesComeInTheOrderOfTheirList) {
  std::vector<float> seen;
  LogitOptions logits = With<WatchingStage>(&seen);
  logits.on_logits = [](std::span<const TokenId>, std::span<float> row) -> Status {
    std::fill(row.begin(), row.end(), 0.0f);
    row[5] = 100;
    row[7] = 3;
    row[6] = std::numeric_limits<float>::quiet_NaN();
    return {};
  };
  GenerateOptions options;
  options.max_tokens = 1;
  options.logits = logits;
  options.processors.emplace();
  options.processors->suppress = {5};
  SamplingOptions sampling = Hot(1);
  sampling.logit_bias = {{7, 2.5f}};
  sampling.presence_penalty = 1000;
  auto session = OpenSession(TinyChainModel(), OneThread(KvType::kF32, 1));
  auto sampler = Sampler::Create(sampling, TinyChainModel()->vocab_size());
  const std::vector<TokenId> prompt = {1, 9};
  auto text = Generate(*session, TinyChainModel()->tokenizer(), *sampler, prompt, options, {});
  ASSERT_TRUE(text.ok()) << text.error().message;
  // Log-probabilities of what the function left without tokens 5 and 6, then the bias.
  const double sum = std::log(static_cast<double>(kTinyVocab - 3) + std::exp(3.0));
  ASSERT_EQ(seen.size(), static_cast<size_t>(kTinyVocab));
  EXPECT_EQ(seen[5], kBanned);
  EXPECT_EQ(seen[6], kBanned);
  EXPECT_NEAR(static_cast<double>(seen[4]), -sum, 1e-5);
  EXPECT_NEAR(static_cast<double>(seen[7]), 3 - sum + 2.5, 1e-5);
  // Token 9 occurred, so the penalty takes it back.
  EXPECT_NE(text->ids.at(0), 9);
  EXPECT_NE(text->ids.at(0), 8);
}

// ---- Beams --------------------------------------------------------------------------------------

std::vector<BeamOptions> ChainSearches() {
  std::vector<BeamOptions> all(6, Beams(4, 30));
  all[1].groups = 2;
  all[1].diversity_penalty = 0.7f;
  all[2].sample = true;
  all[2].seed = 6;
  all[3].scoring = BeamScoring::kCt2;
  all[4].scoring = BeamScoring::kWhisper;
  all[5].scoring = BeamScoring::kOga;
  all.push_back(Beams(1, 30));
  all.back().repetition_penalty = 1.3f;
  return all;
}

TEST(LogitChain, StatesFollowBeamsThatBranchAndMove) {
  const std::vector<std::vector<TokenId>> prompts = {RandomTokens(12, 1), RandomTokens(40, 2)};
  auto runner = OpenRunner(TinyChainModel(), OneThread(KvType::kF32, 8));
  for (const BeamOptions& search : ChainSearches()) {
    const auto expected =
        Generate(*runner, prompts, {.search = search, .logits = With<ReadingStage>()});
    const auto found =
        Generate(*runner, prompts, {.search = search, .logits = With<RememberingStage>()});
    const auto without = Generate(*runner, prompts, {.search = search});
    size_t branches = 0;
    for (size_t i = 0; i < prompts.size(); ++i) {
      ExpectSameBits(found[i].hypotheses, expected[i].hypotheses, "a search");
      EXPECT_NE(found[i].hypotheses[0].ids, without[i].hypotheses[0].ids);
      for (const BeamHypothesis& one : found[i].hypotheses) {
        for (const int32_t parent : one.parents) branches += parent > 0 ? 1 : 0;
      }
    }
    if (search.beams > 1) {
      EXPECT_GT(branches, 5u);
    }
  }
}

TEST(LogitChain, ABeamEndsWhereAStageLeavesNoToken) {
  auto runner = OpenRunner(TinyChainModel(), OneThread(KvType::kF32, 4));
  for (BeamOptions search : ChainSearches()) {
    search.end_tokens = {0};
    search.suppress = {0};
    for (const int64_t count : {1, 6}) {
      const auto found = Generate(*runner, {RandomTokens(12, 1)},
                                  {.search = search, .logits = With<LimitStage>(count, true)});
      ASSERT_FALSE(found[0].hypotheses.empty());
      for (const BeamHypothesis& one : found[0].hypotheses) {
        EXPECT_TRUE(one.no_token);
        EXPECT_FALSE(one.ended);
        EXPECT_EQ(std::ssize(one.ids), count);
      }
      if (search.sample) continue;  // the last step takes candidates in another order
      BeamOptions shorter = search;
      shorter.max_new_tokens = count;
      const auto whole = Generate(*runner, {RandomTokens(12, 1)}, {.search = shorter});
      EXPECT_EQ(found[0].hypotheses[0].ids, whole[0].hypotheses[0].ids);
      EXPECT_FALSE(whole[0].hypotheses[0].no_token);
    }
  }
  const std::vector<std::vector<TokenId>> prompts = {RandomTokens(9, 1)};
  const auto refused = GenerateBeams(
      *runner, prompts, {.search = Beams(3, 20), .logits = With<LimitStage>(4, false)});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "beam search: no token has a finite logit");
}

}  // namespace
}  // namespace kvant::test
