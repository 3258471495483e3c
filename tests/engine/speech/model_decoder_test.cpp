// The text of a window on a small model: prompts, rules, probabilities and languages, against the
// model run token by token.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/speech/speech_rules.h"
#include "engine/speech/window_decoder.h"
#include "kvant/runner.h"
#include "tests/engine/speech/small_whisper.h"
#include "tests/engine/speech/speech_noise.h"

namespace kvant::test {
namespace {

using speech::SpeechRules;
using testing::ElementsAre;
using testing::HasSubstr;

class WindowOfModel : public testing::Test {
 protected:
  void SetUp() override {
    MakeSmallWhisper(seeded_);
    model_ = seeded_.Open();
    ASSERT_NE(model_, nullptr);
    frames_ = seeded_.Frames();
  }

  std::unique_ptr<speech::WindowDecoder> Decoder(const TranscribeOptions& options) {
    auto made = speech::MakeModelDecoder(model_, options, {});
    EXPECT_TRUE(made.ok()) << made.error().message;
    return made.ok() ? std::move(*made) : nullptr;
  }

  std::string ErrorOf(const TranscribeOptions& options) {
    const auto made = speech::MakeModelDecoder(model_, options, {});
    return made.ok() ? "accepted" : made.error().message;
  }

  // The logits behind tokens, by a runner that has seen nothing else.
  std::vector<float> LogitsBehind(const std::vector<TokenId>& tokens) {
    auto runner = Runner::Create(model_, {.threads = 1, .sequences = 1});
    EXPECT_TRUE(runner.ok());
    const auto sequence = (*runner)->NewSequenceOfFrames(frames_);
    EXPECT_TRUE(sequence.ok());
    EXPECT_TRUE((*runner)->Append(*sequence, tokens).ok());
    const auto logits = (*runner)->logits(*sequence);
    return {logits.begin(), logits.end()};
  }

  SpeechRules Rules(const TranscribeOptions& options) {
    SpeechRules rules;
    const auto tokens = speech::ReadSpeechTokens(*model_);
    EXPECT_TRUE(tokens.ok());
    rules.tokens = *tokens;
    const auto suppressed = SuppressedTokens(model_->tokenizer(), rules.tokens, options);
    EXPECT_TRUE(suppressed.ok());
    rules.suppressed = *suppressed;
    rules.times = options.timestamps;
    rules.first_time_max = 50;
    return rules;
  }

  struct Greedy {
    std::vector<TokenId> tokens;
    double sum = 0;
  };
  // The likeliest token each time.
  Greedy TakeLikeliest(const std::vector<TokenId>& prompt, const SpeechRules& rules) {
    Greedy out;
    while (out.tokens.size() < 24) {
      std::vector<TokenId> all = prompt;
      all.insert(all.end(), out.tokens.begin(), out.tokens.end());
      std::vector<float> logits = LogitsBehind(all);
      ApplySpeechRules(rules, out.tokens, logits);
      const auto best = std::ranges::max_element(logits);
      double total = 0;
      for (const float logit : logits) total += std::exp(double{logit});
      out.sum += double{*best} - std::log(total);
      const auto token = static_cast<TokenId>(best - logits.begin());
      if (token == kSmallEnd) break;
      out.tokens.push_back(token);
    }
    return out;
  }

  SeededModel seeded_{std::string(kSeededSpeech) + "whisper-stacks"};
  std::shared_ptr<const Model> model_;
  std::vector<float> frames_;
};

TEST_F(WindowOfModel, TokensAreFoundByTheirNames) {
  const SpeechRules rules = Rules({});
  EXPECT_EQ(rules.tokens.end, kSmallEnd);
  EXPECT_EQ(rules.tokens.previous, kSmallPrevious);
  EXPECT_EQ(rules.tokens.no_speech, kSmallNoSpeech);
  EXPECT_EQ(rules.tokens.first_time, kSmallTimes);
  EXPECT_THAT(rules.tokens.languages, ElementsAre(22, 23));
  EXPECT_THAT(rules.suppressed,
              testing::IsSupersetOf({kSmallStart, kSmallTranslate, kSmallTranscribe, kSmallModel,
                                     kSmallPrevious, kSmallNoSpeech}));
}

// The likeliest tokens, their probabilities, and that of no speech, for each kind of prompt.
TEST_F(WindowOfModel, TextsAreThoseOfTheModelTokenByToken) {
  struct Case {
    std::string language;
    SpeechTask task;
    bool times;
    std::vector<TokenId> context;
    std::vector<TokenId> prompt;
  };
  for (const Case& one :
       {Case{"en", SpeechTask::kTranscribe, true, {}, {21, 22, 25}},
        Case{"german", SpeechTask::kTranslate, true, {}, {21, 23, 24}},
        Case{"de", SpeechTask::kTranscribe, false, {}, {21, 23, 25, 29}},
        Case{
            "de", SpeechTask::kTranscribe, true, {4, 30, 5, 33}, {27, 4, 30, 5, 33, 21, 23, 25}}}) {
    TranscribeOptions options;
    options.language = one.language;
    options.task = one.task;
    options.timestamps = one.times;
    options.beams = 1;
    const auto decoder = Decoder(options);
    ASSERT_NE(decoder, nullptr);
    ASSERT_TRUE(decoder->Begin(frames_, one.context).ok());
    const auto found = decoder->Try(0);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const Greedy expected = TakeLikeliest(one.prompt, Rules(options));
    EXPECT_EQ(found->tokens, expected.tokens);
    const auto length = static_cast<double>(expected.tokens.size() + 1);
    EXPECT_NEAR(found->avg_log_prob, expected.sum / length, 1e-5);
    const auto start = std::ranges::find(one.prompt, 21);
    const std::vector<float> logits = LogitsBehind({one.prompt.begin(), start + 1});
    double total = 0;
    for (const float logit : logits) total += std::exp(double{logit});
    EXPECT_NEAR(found->no_speech_prob, std::exp(double{logits[28]}) / total, 1e-6);
    // Again, and drawn at a temperature that leaves one token.
    EXPECT_EQ(decoder->Try(0)->tokens, expected.tokens);
    const auto drawn = decoder->Try(1e-4f);
    ASSERT_TRUE(drawn.ok()) << drawn.error().message;
    EXPECT_EQ(drawn->tokens, expected.tokens);
    EXPECT_NEAR(drawn->avg_log_prob, found->avg_log_prob, 1e-5);
  }
}

// The newest tokens count.
TEST_F(WindowOfModel, LongContextsAreCut) {
  TranscribeOptions options;
  options.language = "en";
  const auto decoder = Decoder(options);
  ASSERT_NE(decoder, nullptr);
  const size_t most = decoder->context_max();
  EXPECT_EQ(most, static_cast<size_t>(model_->context_length()) / 2 - 1);
  std::vector<TokenId> context(most + 5);
  for (size_t i = 0; i < context.size(); ++i) context[i] = static_cast<TokenId>(i % 9);
  ASSERT_TRUE(decoder->Begin(frames_, context).ok());
  const auto all = decoder->Try(0);
  ASSERT_TRUE(decoder->Begin(frames_, std::span(context).last(most)).ok());
  const auto cut = decoder->Try(0);
  ASSERT_TRUE(all.ok() && cut.ok());
  EXPECT_EQ(all->tokens, cut->tokens);
  EXPECT_EQ(all->avg_log_prob, cut->avg_log_prob);
}

TEST_F(WindowOfModel, SeveralBeamsFindNothingWorse) {
  TranscribeOptions options;
  options.language = "en";
  double last = -1e9;
  for (const int32_t beams : {1, 5}) {
    options.beams = beams;
    const auto decoder = Decoder(options);
    ASSERT_NE(decoder, nullptr);
    ASSERT_TRUE(decoder->Begin(frames_, {}).ok());
    const auto found = decoder->Try(0);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const auto length = static_cast<double>(found->tokens.size());
    const double score = found->avg_log_prob * (length + 1) / length;
    EXPECT_GE(score, last) << beams;
    last = score;
  }
}

// Draws follow from the seed, and the best of several is what counts.
TEST_F(WindowOfModel, DrawsFollowFromTheSeed) {
  TranscribeOptions options;
  options.language = "en";
  options.seed = 7;
  const auto draw = [&](int32_t best_of) {
    options.best_of = best_of;
    const auto decoder = Decoder(options);
    EXPECT_TRUE(decoder->Begin(frames_, {}).ok());
    const auto found = decoder->Try(1.0f);
    EXPECT_TRUE(found.ok());
    EXPECT_EQ(found->temperature, 1.0f);
    return found.ok() ? *found : speech::WindowText();
  };
  const auto score = [](const speech::WindowText& text) {
    const auto length = static_cast<double>(text.tokens.size());
    return text.avg_log_prob * (length + 1) / length;
  };
  const auto one = draw(1);
  EXPECT_EQ(draw(1).tokens, one.tokens);
  double best = score(one);
  for (uint64_t seed = 8; seed < 13; ++seed) {
    options.seed = seed;
    best = std::max(best, score(draw(1)));
  }
  options.seed = 7;
  EXPECT_NEAR(score(draw(6)), best, 1e-12);
  options.seed = 100;
  EXPECT_NE(draw(1).tokens, one.tokens);
}

TEST_F(WindowOfModel, LanguagesAreKnownOrFound) {
  const auto decoder = Decoder({});
  ASSERT_NE(decoder, nullptr);
  const auto found = decoder->DetectLanguage(frames_);
  ASSERT_TRUE(found.ok());
  const std::vector<float> logits = LogitsBehind({21});
  EXPECT_EQ(*found, logits[22] >= logits[23] ? "en" : "de");
  EXPECT_TRUE(decoder->SetLanguage("German").ok());
  EXPECT_EQ(decoder->language(), "de");
  const Status unknown = decoder->SetLanguage("klingon");
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("(en, de), found \"klingon\""));
}

TEST_F(WindowOfModel, ModelsOfEnglishAloneAreToldNoLanguage) {
  SeededModel english(std::string(kSeededSpeech) + "whisper-stacks");
  MakeSmallWhisper(english, SmallLanguages::kEnglishAlone);
  model_ = english.Open();
  ASSERT_NE(model_, nullptr);
  TranscribeOptions options;
  options.beams = 1;
  const auto decoder = Decoder(options);
  ASSERT_NE(decoder, nullptr);
  EXPECT_EQ(decoder->language(), "en");
  ASSERT_TRUE(decoder->Begin(frames_, {}).ok());
  EXPECT_EQ(decoder->Try(0)->tokens, TakeLikeliest({21}, Rules(options)).tokens);
  options.language = "german";
  EXPECT_THAT(ErrorOf(options), HasSubstr("the model knows English alone, and cannot read 'de'"));
  options.language.reset();
  options.task = SpeechTask::kTranslate;
  EXPECT_THAT(ErrorOf(options), HasSubstr("cannot translate"));
}

TEST_F(WindowOfModel, WrongOptionsAreNamed) {
  const auto with = [](auto change) {
    TranscribeOptions options;
    change(options);
    return options;
  };
  using Options = TranscribeOptions;
  EXPECT_THAT(ErrorOf(with([](Options& o) { o.beams = 0; })), HasSubstr("beams: expected 1 to"));
  EXPECT_THAT(ErrorOf(with([](Options& o) { o.best_of = 65; })), HasSubstr("best-of: expected"));
  EXPECT_THAT(ErrorOf(with([](Options& o) { o.temperatures = {}; })), HasSubstr("temperatures"));
  EXPECT_THAT(ErrorOf(with([](Options& o) { o.temperatures = {-1}; })), HasSubstr("found -1"));
  EXPECT_THAT(ErrorOf(with([](Options& o) { o.length_penalty = 2; })), HasSubstr("length-penalty"));
  EXPECT_THAT(ErrorOf(with([](Options& o) { o.suppress_tokens = {64}; })),
              HasSubstr("suppress-tokens: expected tokens below 64, found 64"));
  EXPECT_THAT(ErrorOf(with([](Options& o) { o.max_initial_timestamp = 31; })),
              HasSubstr("max-initial-timestamp"));
  EXPECT_THAT(ErrorOf(with([](Options& o) { o.language = "xx"; })), HasSubstr("(en, de)"));
}

TEST_F(WindowOfModel, OtherModelsAreRefused) {
  SeededModel without(std::string(kSeededSpeech) + "whisper-stacks");
  model_ = without.Open();
  EXPECT_THAT(ErrorOf({}), HasSubstr("expected a token <|startoftranscript|> to transcribe with"));
  SeededModel bart(std::string(kSeededPairs) + "bart");
  model_ = bart.Open();
  EXPECT_THAT(ErrorOf({}), HasSubstr("expected a model that reads frames of sound"));
}

}  // namespace
}  // namespace kvant::test
