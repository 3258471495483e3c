// Texts under a grammar beside texts that are made step by step: what is forced, what is thought
// before, forks, and the scores of beams.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/beam_generator.h"
#include "kvant/conversation.h"
#include "kvant/generator.h"
#include "kvant/grammar.h"
#include "kvant/model.h"
#include "kvant/random.h"
#include "kvant/session.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

template <class T>
T Good(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return std::move(*result);
}

std::shared_ptr<const Model> Named(const std::string& name) {
  return Good(Model::Open(SourcePath("models/" + name + "/" + name + ".gguf")));
}

const std::shared_ptr<const Model>& Poet() {
  static const auto model = Named("shakespeare");
  return model;
}

std::shared_ptr<const Grammar> GrammarOf(const Model& model, const GrammarText& text) {
  return Good(Grammar::Create(text, model.tokenizer()));
}

Generation TextOf(const std::shared_ptr<const Model>& model, const GenerateOptions& options,
                  const SamplingOptions& sampling, SessionOptions session = {}) {
  session.threads = 1;
  const auto opened = Good(Session::Create(model, session));
  Sampler sampler = Good(Sampler::Create(sampling, model->vocab_size(), &model->tokenizer()));
  const auto prompt = Good(model->tokenizer().Encode("KING", {.add_special = true}));
  return Good(Generate(*opened, model->tokenizer(), sampler, prompt, options, {}));
}

// A grammar that tells nobody what it forces.
class SilentStage final : public LogitStage {
 public:
  explicit SilentStage(std::unique_ptr<LogitStage> stage) : stage_(std::move(stage)) {}
  Status Apply(const LogitText& text, std::span<float> row) override {
    return stage_->Apply(text, row);
  }
  bool ends_text() const override { return true; }
  void Accept(TokenId token, TokenFrom from) override { stage_->Accept(token, from); }
  std::unique_ptr<LogitStage> Clone() const override {
    return std::make_unique<SilentStage>(stage_->Clone());
  }

 private:
  std::unique_ptr<LogitStage> stage_;
};

// GRM-15.
TEST(GrammarTexts, WhatIsForcedIsWhatSingleStepsGive) {
  const GrammarText text = {
      GrammarText::Kind::kGbnf,
      R"(root ::= "{\"name\": \"" [a-z]{3,8} "\", \"title\": \"" ("King" | "Kingmaker") )"
      R"("\", \"land\": \"England\"}")",
      {}};
  for (const std::string name : {"shakespeare", "lfm2-tiny"}) {
    const auto model = Named(name);
    const auto grammar = GrammarOf(*model, text);
    for (const uint64_t seed : {0, 1, 2}) {
      SamplingOptions sampling;
      sampling.seed = seed;
      if (seed == 0) sampling.temperature = 0;
      GenerateOptions options;
      options.max_tokens = 120;
      options.log_probs = 3;
      GenerateOptions silent = options;
      silent.logits.stages.push_back(
          [&](const LogitStageSetup& setup) -> Result<std::unique_ptr<LogitStage>> {
            KVANT_ASSIGN(auto stage, grammar->NewStage(setup.vocab_size));
            return std::unique_ptr<LogitStage>(std::make_unique<SilentStage>(std::move(stage)));
          });
      options.logits.grammar = grammar;
      // Only where the last tokens can be taken back is anything guessed.
      const SessionOptions session = {.state_log = seed == 2 ? 64 : 0};
      const Generation steps = TextOf(model, silent, sampling, session);
      const Generation forced = TextOf(model, options, sampling, session);
      EXPECT_EQ(steps.finish_reason, FinishReason::kStop);
      EXPECT_EQ(forced.finish_reason, FinishReason::kStop);
      EXPECT_EQ(forced.ids, steps.ids) << forced.text << " and " << steps.text;
      EXPECT_EQ(steps.forced_tokens, 0);
      const bool guesses = name == "shakespeare" || seed == 2;
      EXPECT_EQ(forced.forced_tokens > 0, guesses) << name << seed;
      const int64_t fewer = guesses ? 10 : 0;
      EXPECT_LE(forced.decode_passes + fewer, steps.decode_passes) << forced.text;
      // All bits are equal.
      ASSERT_EQ(forced.log_probs.size(), steps.log_probs.size());
      for (size_t i = 0; i < steps.log_probs.size(); ++i) {
        EXPECT_EQ(forced.log_probs[i].chosen.log_prob, steps.log_probs[i].chosen.log_prob) << i;
        EXPECT_EQ(forced.log_probs[i].top.back().log_prob, steps.log_probs[i].top.back().log_prob);
      }
    }
  }
}

// Lets a text begin with these tokens, whatever else may.
class ScriptStage final : public CopiedLogitStage<ScriptStage> {
 public:
  explicit ScriptStage(std::vector<TokenId> script) : script_(std::move(script)) {}
  Status Apply(const LogitText& text, std::span<float> row) override {
    if (text.generated >= std::ssize(script_)) return {};
    const auto wanted = static_cast<size_t>(script_[static_cast<size_t>(text.generated)]);
    const float kept = row[wanted];
    std::ranges::fill(row, -std::numeric_limits<float>::infinity());
    row[wanted] = kept;
    return {};
  }

 private:
  std::vector<TokenId> script_;
};

TEST(GrammarTexts, AThoughtIsFreeAndWhatFollowsIsNot) {
  const Tokenizer& tokenizer = Poet()->tokenizer();
  SamplingOptions greedy;
  greedy.temperature = 0;
  for (const bool opened : {false, true}) {
    for (const bool thinks : {false, true}) {
      if (opened && !thinks) continue;
      GenerateOptions options;
      options.max_tokens = 60;
      options.logits.grammar =
          GrammarOf(*Poet(), {GrammarText::Kind::kChoices, "", {"aye", "nay"}});
      options.logits.thoughts = {.marks = {{"<think>", "</think>"}}, .opened = opened ? 0 : -1};
      std::string script = opened ? "Is it? <no>" : "<think>\nIs it? <no>";
      script += "</think>\n\n";
      if (!thinks) script.clear();
      options.logits.stages.push_back([&](const LogitStageSetup&) {
        const auto tokens = Good(tokenizer.Encode(script, {}));
        return Result<std::unique_ptr<LogitStage>>(std::make_unique<ScriptStage>(tokens));
      });
      const Generation made = TextOf(Poet(), options, greedy);
      EXPECT_EQ(made.finish_reason, FinishReason::kStop);
      ASSERT_TRUE(made.text.starts_with(script)) << made.text;
      std::string content = made.text.substr(script.size());
      const size_t blanks = std::min(content.find_first_not_of(" \n"), content.size());
      EXPECT_LE(blanks, thinks ? 8u - 2u : 0u) << made.text;
      content.erase(0, blanks);
      EXPECT_TRUE(content == "aye" || content == "nay") << made.text;
    }
  }
}

// Templates open thoughts, or have them over; without a mark of theirs an answer has none.
TEST(GrammarTexts, AnswersBeginBehindTheirThoughts) {
  const std::string messages =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:";
  const auto answer = [&](const std::string& begin) {
    ConversationOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = 12;
    options.grammar = GrammarOf(*Poet(), {GrammarText::Kind::kChoices, "", {"aye", "nay"}});
    auto conversation = Good(Conversation::Create(
        Poet(), [](int64_t sequences) { return Runner::Create(Poet(), {.sequences = sequences}); },
        Good(ChatTemplate::Parse(*Poet(), "test", messages + begin)), options));
    conversation->AddUser("Is it?");
    const AnswerReport report = Good(conversation->Answer({}));
    return std::pair(conversation->entries().back().message, report.finish_reason);
  };
  const auto is_choice = [](const std::string& text) { return text == "aye" || text == "nay"; };
  const auto [plain, plain_end] = answer("\n");
  EXPECT_TRUE(is_choice(plain.content)) << plain.content;
  EXPECT_EQ(plain_end, FinishReason::kStop);
  const auto [over, over_end] = answer("<think>\n\n</think>\n\n");
  EXPECT_TRUE(is_choice(over.content)) << over.content;
  EXPECT_EQ(over_end, FinishReason::kStop);
  const auto [open, open_end] = answer("<think>\n");
  EXPECT_EQ(open.content, "");
  EXPECT_GT(open.reasoning.size(), 10u);
  EXPECT_EQ(open_end, FinishReason::kLength);
}

// GRM-13: a copy of a stage, and one that reads the text anew, go on as the stage does.
TEST(GrammarTexts, CopiesAndFreshStagesAgree) {
  const auto grammar = GrammarOf(*Poet(), {GrammarText::Kind::kJson, "", {}});
  const auto vocab = static_cast<size_t>(Poet()->vocab_size());
  Xoshiro256 random(5);
  for (int text = 0; text < 5; ++text) {
    std::unique_ptr<LogitStage> stage = Good(grammar->NewStage(Poet()->vocab_size()));
    std::vector<TokenId> tokens;
    for (int step = 0; step < 30; ++step) {
      std::vector<float> row(vocab);
      for (float& value : row) value = static_cast<float>(random.Next() >> 40);
      std::vector<float> copied = row;
      std::vector<float> fresh = row;
      const std::unique_ptr<LogitStage> copy = stage->Clone();
      const std::unique_ptr<LogitStage> anew = Good(grammar->NewStage(Poet()->vocab_size()));
      anew->Accept(5, TokenFrom::kPrompt);
      for (const TokenId token : tokens) anew->Accept(token, TokenFrom::kText);
      ASSERT_TRUE(stage->Apply({}, row).ok());
      ASSERT_TRUE(copy->Apply({}, copied).ok());
      ASSERT_TRUE(anew->Apply({}, fresh).ok());
      ASSERT_EQ(copied, row);
      ASSERT_EQ(fresh, row);
      const auto token = static_cast<TokenId>(std::ranges::max_element(row) - row.begin());
      if (Poet()->tokenizer().is_end_of_generation(token)) break;
      copy->Accept(token, TokenFrom::kText);  // the original does not change with it
      stage->Accept(token, TokenFrom::kText);
      tokens.push_back(token);
    }
  }
}

// All ways to spell a text, each with its end token.
void Spellings(const Tokenizer& tokenizer, const std::string& left, std::vector<TokenId>& begun,
               std::vector<std::vector<TokenId>>& out) {
  if (left.empty()) {
    for (const TokenId end : tokenizer.special().end_of_generation) {
      out.push_back(begun);
      out.back().push_back(end);
    }
    return;
  }
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    if (tokenizer.is_control(token) || tokenizer.is_end_of_generation(token)) continue;
    const std::string bytes = tokenizer.TokenBytes(token, {});
    if (bytes.empty() || !left.starts_with(bytes)) continue;
    begun.push_back(token);
    Spellings(tokenizer, left.substr(bytes.size()), begun, out);
    begun.pop_back();
  }
}

// The sum of the log-probabilities of tokens behind a prompt, in double precision.
double SumOf(const std::vector<TokenId>& prompt, const std::vector<TokenId>& tokens) {
  const auto session = Good(Session::Create(Poet(), {.threads = 1}));
  EXPECT_TRUE(session->Append(prompt).ok());
  double sum = 0;
  for (const TokenId token : tokens) {
    const std::span<const float> row = session->logits();
    double total = 0;
    for (const float value : row) total += std::exp(double{value});
    sum += double{row[static_cast<size_t>(token)]} - std::log(total);
    EXPECT_TRUE(session->Append({&token, 1}).ok());
  }
  return sum;
}

// Hugging Face's scores with the same tokens banned: those of the model, not shared out anew. With
// as many beams as there are ways, the best way of all is found.
TEST(GrammarTexts, BeamsFindTheBestSpelling) {
  const Tokenizer& tokenizer = Poet()->tokenizer();
  const std::vector<std::string> choices = {"aye", "no"};
  const auto prompt = Good(tokenizer.Encode("ROMEO: Will you?", {.add_special = true}));
  std::vector<std::vector<TokenId>> spellings;
  std::vector<TokenId> begun;
  for (const std::string& choice : choices) Spellings(tokenizer, choice, begun, spellings);
  ASSERT_GE(spellings.size(), 4u);
  ASSERT_LE(spellings.size(), 24u);
  std::vector<std::pair<double, std::vector<TokenId>>> ranked;
  for (const auto& spelling : spellings) {
    ranked.emplace_back(SumOf(prompt, spelling) / static_cast<double>(spelling.size()), spelling);
  }
  std::ranges::sort(ranked, std::greater());
  auto runner = Good(Runner::Create(Poet(), {.threads = 1, .sequences = 24}));
  BeamGenerateOptions options;
  options.search.beams = 24;
  options.search.num_return = 3;
  options.search.max_new_tokens = 9;
  options.search.end_tokens = tokenizer.special().end_of_generation;
  options.logits.grammar = GrammarOf(*Poet(), {GrammarText::Kind::kChoices, "", choices});
  const auto found = Good(GenerateBeams(*runner, {&prompt, 1}, options));
  ASSERT_EQ(found.front().hypotheses.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found.front().hypotheses[i].ids, ranked[i].second) << i;
    EXPECT_NEAR(found.front().hypotheses[i].score, ranked[i].first, 1e-3) << i;
  }
}

}  // namespace
}  // namespace kvant::test
