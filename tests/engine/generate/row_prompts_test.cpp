// Texts whose prompts have rows in place of some tokens: what looks at tokens passes over rows.
#include <gtest/gtest.h>

#include "engine/evaluate/text_scores.h"
#include "kvant/draft.h"
#include "kvant/scheduler.h"
#include "kvant/text_request.h"
#include "tests/engine/run/row_texts.h"

namespace kvant::test {
namespace {

// Guesses a row each time.
class RowDraft final : public Draft {
 public:
  explicit RowDraft(TokenId row) : guess_(2, row) {}
  Result<std::span<const TokenId>> Propose(std::span<const TokenId>, int64_t count) override {
    ++calls;
    return std::span<const TokenId>(guess_).first(
        std::min(guess_.size(), static_cast<size_t>(count)));
  }
  int calls = 0;

 private:
  std::vector<TokenId> guess_;
};

class RowPrompts : public testing::Test {
 protected:
  void SetUp() override {
    model_ = OpenTiny({}, OwnGemm());
    runner_ = OpenRunner(model_, Options(KvType::kF32, 2));
    plain_ = RandomTokens(40, 1);
    // Rows that came twice, each time behind the same tokens.
    std::copy_n(plain_.begin(), 12, plain_.begin() + 24);
    mixed_ = plain_;
    rows_ = ReplaceByRows(*runner_, mixed_, 5, 4);
    std::copy_n(mixed_.begin(), 12, mixed_.begin() + 24);
  }

  Generation Text(const std::vector<TokenId>& prompt, const GenerateOptions& options,
                  const SamplingOptions& sampling) {
    TextRequest request({.tokenizer = SharedTokenizer(model_),
                         .input = std::make_shared<TextInput>(TextInput{prompt}),
                         .options = options,
                         .sampling = sampling,
                         .vocab_size = model_->vocab_size()});
    Scheduler scheduler(*runner_, {});
    scheduler.Submit(request);
    ExpectOk(scheduler.Drain());
    return request.TakeGeneration();
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Runner> runner_;
  std::vector<TokenId> plain_;
  std::vector<TokenId> mixed_;
  RowIds rows_;
};

GenerateOptions ThirtyTokens() {
  GenerateOptions options;
  options.max_tokens = 30;
  options.ignore_eos = true;
  return options;
}

SamplingOptions SeededSampling() {
  SamplingOptions sampling;
  sampling.temperature = 1.1f;
  sampling.seed = 3;
  return sampling;
}

// Without penalties the texts are those of the tokens.
TEST_F(RowPrompts, GiveTheTextsOfTokens) {
  const auto expected = Text(plain_, ThirtyTokens(), SeededSampling());
  EXPECT_EQ(Text(mixed_, ThirtyTokens(), SeededSampling()).ids, expected.ids);
}

TEST_F(RowPrompts, AreShownWithoutTheirRows) {
  GenerateOptions options = ThirtyTokens();
  options.echo = true;
  std::vector<TokenId> shown = mixed_;
  std::erase_if(shown, [](TokenId id) { return id >= kTinyVocab; });
  EXPECT_EQ(shown.size(), mixed_.size() - 8);
  const Generation text = Text(mixed_, options, SeededSampling());
  const std::string prompt = model_->tokenizer().Decode(shown, {});
  Utf8Stream stream;
  std::string expected = stream.Push(prompt);
  expected += stream.Finish();
  EXPECT_EQ(text.text.substr(0, expected.size()), expected);
}

// A row is neither penalized nor banned, so what the penalties change is what they change behind
// the other tokens of the prompt.
TEST_F(RowPrompts, PenaltiesPassOverRows) {
  SamplingOptions sampling = SeededSampling();
  sampling.repeat_penalty = 1.3f;
  sampling.repeat_last_n = -1;
  Sampler all = *Sampler::Create(sampling, kTinyVocab, nullptr);
  Sampler others = *Sampler::Create(sampling, kTinyVocab, nullptr);
  for (const TokenId id : mixed_) all.Accept(id);
  for (const TokenId id : mixed_) {
    if (id < kTinyVocab) others.Accept(id);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    const std::vector<float> logits = RandomValues(kTinyVocab, 2.0f, random);
    EXPECT_EQ(*all.Sample(logits), *others.Sample(logits));
  }
  sampling.dry_multiplier = 0.8f;
  GenerateOptions options = ThirtyTokens();
  options.processors.emplace();
  options.processors->repetition_penalty = 1.2f;
  options.processors->no_repeat_ngram = 1;  // bans whatever the prompt has
  const Generation text = Text(mixed_, options, sampling);
  ASSERT_EQ(text.ids.size(), 30u);
  for (const TokenId id : text.ids) EXPECT_EQ(std::ranges::count(mixed_, id), 0) << id;
}

TEST_F(RowPrompts, DraftsNeverGuessRows) {
  const auto expected = Text(mixed_, ThirtyTokens(), SeededSampling());
  GenerateOptions options = ThirtyTokens();
  const auto row = std::make_shared<RowDraft>(rows_.first);
  const auto ngrams = std::make_shared<NgramDraft>();
  auto smaller = ModelDraft::Create(OpenSession(model_, Options(KvType::kF32, 1)), kTinyVocab);
  ASSERT_TRUE(smaller.ok());
  const std::shared_ptr<Draft> of_model = std::move(*smaller);
  for (const std::shared_ptr<Draft>& draft :
       {std::shared_ptr<Draft>(row), of_model, std::shared_ptr<Draft>(ngrams)}) {
    options.draft = draft;
    const Generation text = Text(mixed_, options, SeededSampling());
    EXPECT_EQ(text.ids, expected.ids);
    if (draft != ngrams) {
      EXPECT_EQ(text.drafted_tokens, 0);
    }
  }
  EXPECT_GT(row->calls, 20);
}

// Rows may stand before what is scored, and have no probability themselves.
TEST_F(RowPrompts, TextsAreScoredBehindRows) {
  const auto scores = [&](const std::vector<TokenId>& tokens, size_t first,
                          std::vector<double>& out) {
    out.resize(tokens.size() - first);
    std::vector<evaluate::ScoredText> texts(1);
    texts[0].tokens = tokens;
    texts[0].first = first;
    texts[0].log_probs = out;
    return evaluate::ScoreTexts(*runner_, texts);
  };
  std::vector<double> expected;
  std::vector<double> found;
  ExpectOk(scores(plain_, 30 + 3, expected));
  ExpectOk(scores(mixed_, 30 + 3, found));
  EXPECT_EQ(found, expected);
  const Status refused = scores(mixed_, 20, found);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            fmt::format("text 0: expected tokens below {}, found {}", kTinyVocab, rows_.first));
}

}  // namespace
}  // namespace kvant::test
