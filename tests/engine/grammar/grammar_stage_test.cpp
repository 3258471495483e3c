// Texts that follow a grammar: sampled, in batches, in beam searches and with drafts.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "base/result.h"
#include "kvant/batch_generator.h"
#include "kvant/beam_generator.h"
#include "kvant/draft.h"
#include "kvant/generator.h"
#include "kvant/grammar.h"
#include "kvant/model.h"
#include "kvant/random.h"
#include "kvant/sampler.h"
#include "kvant/session.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

template <class T>
T Taken(Result<T> result) {
  EXPECT_TRUE(result.ok());
  return std::move(*result);
}

const std::shared_ptr<const Model>& Bard() {
  static const auto model = *Model::Open(SourcePath("models/shakespeare/shakespeare.gguf"));
  return model;
}

std::shared_ptr<const Grammar> Made(const GrammarText& text) {
  auto grammar = Grammar::Create(text, Bard()->tokenizer());
  EXPECT_TRUE(grammar.ok()) << grammar.error().message;
  return grammar.ok() ? *grammar : nullptr;
}

// A text from random logits under a stage, up to `most` tokens. Whether it has ended by itself.
bool RandomText(const Grammar& grammar, uint64_t seed, int most, std::string& text) {
  const Tokenizer& tokenizer = Bard()->tokenizer();
  const int32_t vocab = tokenizer.vocab_size();
  auto stage = Taken(grammar.NewStage(vocab));
  Xoshiro256 random(seed);
  std::vector<float> row(static_cast<size_t>(vocab));
  for (int i = 0; i < most; ++i) {
    for (float& logit : row) logit = static_cast<float>(random.Next() >> 40);
    EXPECT_TRUE(stage->Apply({}, row).ok());
    const auto best = std::max_element(row.begin(), row.end());
    if (*best == -std::numeric_limits<float>::infinity()) return true;
    const auto token = static_cast<TokenId>(best - row.begin());
    stage->Accept(token, TokenFrom::kText);
    if (tokenizer.is_end_of_generation(token)) return true;
    text += tokenizer.TokenBytes(token, {});
  }
  return false;
}

TEST(GrammarStage, RandomTextsAreJson) {
  const auto grammar = Made({GrammarText::Kind::kJson, "", {}});
  int ended = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    std::string text;
    if (!RandomText(*grammar, seed, 300, text)) continue;
    ++ended;
    const auto json = nlohmann::json::parse(text, nullptr, false);
    EXPECT_TRUE(json.is_object()) << text;
  }
  EXPECT_GT(ended, 100);
}

TEST(GrammarStage, RandomTextsMatchTheRegex) {
  const std::string expr = "[A-Z][a-z]{1,8}( [a-z]{2,5}){0,3}[.!?]";
  const auto grammar = Made({GrammarText::Kind::kRegex, expr, {}});
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::string text;
    ASSERT_TRUE(RandomText(*grammar, seed, 100, text));
    EXPECT_TRUE(std::regex_match(text, std::regex(expr))) << text;
  }
}

GenerateOptions OptionsWith(std::shared_ptr<const Grammar> grammar, int64_t max_tokens = 40) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.logits.grammar = std::move(grammar);
  return options;
}

Generation GenerateText(const GenerateOptions& options, const SamplingOptions& sampling,
                        const std::string& prompt = "KING") {
  const Tokenizer& tokenizer = Bard()->tokenizer();
  auto session = Taken(Session::Create(Bard(), {.threads = 1}));
  Sampler sampler = Taken(Sampler::Create(sampling, Bard()->vocab_size(), &tokenizer));
  const auto tokens = *tokenizer.Encode(prompt, {.add_special = true});
  auto text = Generate(*session, tokenizer, sampler, tokens, options, {});
  EXPECT_TRUE(text.ok()) << text.error().message;
  return text.ok() ? *text : Generation{};
}

TEST(GrammarStage, ChoosesAmongChoices) {
  const std::vector<std::string> choices = {"yes", "no", "never more", "né"};
  const auto grammar = Made({GrammarText::Kind::kChoices, "", choices});
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SamplingOptions sampling;
    sampling.temperature = 3;
    sampling.seed = seed;
    const Generation text = GenerateText(OptionsWith(grammar), sampling);
    EXPECT_NE(std::find(choices.begin(), choices.end(), text.text), choices.end()) << text.text;
    EXPECT_TRUE(text.finish_reason == FinishReason::kStop ||
                text.finish_reason == FinishReason::kNoToken);
    seen.insert(text.text);
  }
  EXPECT_GT(seen.size(), 1u);
}

// Where the likeliest text complies, the grammar changes nothing.
TEST(GrammarStage, LeavesATextThatCompliesAsItIs) {
  SamplingOptions greedy;
  greedy.temperature = 0;
  const Generation free = GenerateText(OptionsWith(nullptr, 24), greedy);
  const auto grammar = Made({GrammarText::Kind::kRegex, "(.|\\n)*", {}});
  const Generation bound = GenerateText(OptionsWith(grammar, 24), greedy);
  EXPECT_EQ(bound.ids, free.ids);
}

TEST(GrammarStage, DraftsChangeNothing) {
  SamplingOptions sampling;
  sampling.seed = 3;
  GenerateOptions options =
      OptionsWith(Made({GrammarText::Kind::kGbnf, "root ::= ([a-z]+ [ ,])* [a-z]+ \".\"", {}}), 60);
  const Generation plain = GenerateText(options, sampling);
  options.draft = std::make_shared<NgramDraft>();
  const Generation guessed = GenerateText(options, sampling);
  EXPECT_EQ(guessed.ids, plain.ids);
}

TEST(GrammarStage, BatchesAndBeamsFollowIt) {
  const std::string expr = "[A-Z]{3,6}: [a-z ]{5,20}[.]";
  const auto grammar = Made({GrammarText::Kind::kRegex, expr, {}});
  const Tokenizer& tokenizer = Bard()->tokenizer();
  const auto prompt = *tokenizer.Encode("KING", {.add_special = true});
  auto runner = Taken(Runner::Create(Bard(), {.threads = 1, .sequences = 8}));
  BatchOptions batch;
  batch.max_tokens = 60;
  batch.logits.grammar = grammar;
  const std::vector<BatchRequest> requests = {{.prompt = prompt, .samples = 4},
                                              {.prompt = prompt, .samples = 4}};
  int texts = 0;
  ASSERT_TRUE(GenerateBatch(*runner, tokenizer, requests, batch, [&](const BatchText& text) {
                EXPECT_TRUE(std::regex_match(text.text, std::regex(expr))) << text.text;
                ++texts;
                return true;
              }).ok());
  EXPECT_EQ(texts, 8);

  BeamGenerateOptions beams;
  beams.search.beams = 4;
  beams.search.max_new_tokens = 60;
  beams.search.num_return = 4;
  beams.search.end_tokens = tokenizer.special().end_of_generation;
  beams.logits.grammar = grammar;
  const auto found = GenerateBeams(*runner, {&prompt, 1}, beams);
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_FALSE(found->front().hypotheses.empty());
  for (const BeamHypothesis& hypothesis : found->front().hypotheses) {
    std::vector<TokenId> ids = hypothesis.ids;
    if (hypothesis.ended) ids.pop_back();
    const std::string text = tokenizer.Decode(ids, {});
    EXPECT_TRUE(std::regex_match(text, std::regex(expr))) << text;
  }
}

// GRM-18: what stands in the prompt begins no grammar.
TEST(GrammarStage, TriggersInThePromptHaveNoEffect) {
  const Tokenizer& tokenizer = Bard()->tokenizer();
  GrammarText words = {GrammarText::Kind::kRegex, "ROMEO: aye", {}};
  words.triggers.words = {"ROMEO"};
  GrammarText patterns = {GrammarText::Kind::kRegex, "ROMEO: aye", {}};
  patterns.triggers.patterns = {"R[A-Z]{4}"};
  for (const GrammarText& text : {words, patterns}) {
    const auto grammar = Made(text);
    auto stage = Taken(grammar->NewStage(tokenizer.vocab_size()));
    const auto free_tokens = [&] {
      std::vector<float> row(static_cast<size_t>(tokenizer.vocab_size()), 1.0f);
      EXPECT_TRUE(stage->Apply({}, row).ok());
      return std::ranges::count(row, 1.0f);
    };
    const auto before = free_tokens();
    EXPECT_GT(before, tokenizer.vocab_size() / 2);
    const auto speakers = tokenizer.Encode("JULIET\nROMEO", {});
    ASSERT_TRUE(speakers.ok());
    for (const TokenId token : *speakers) stage->Accept(token, TokenFrom::kPrompt);
    EXPECT_EQ(free_tokens(), before);
    for (const TokenId token : *speakers) stage->Accept(token, TokenFrom::kText);
    EXPECT_LT(free_tokens(), 10);
  }
}

TEST(GrammarStage, RefusesWhatIsNoGrammar) {
  const Tokenizer& tokenizer = Bard()->tokenizer();
  EXPECT_EQ(Grammar::Create({GrammarText::Kind::kChoices, "", {}}, tokenizer).error().message,
            "choices: expected 1 to 100000 texts, found 0");
  EXPECT_EQ(Grammar::Create({GrammarText::Kind::kRegex, "(", {}}, tokenizer).error().code,
            ErrorCode::kInvalid);
  const auto grammar = Made({GrammarText::Kind::kRegex, "a", {}});
  EXPECT_FALSE(grammar->NewStage(3).ok());
}

}  // namespace
}  // namespace kvant::test
