// Scores of many texts at once against those of each text alone, for caches of every kind: texts
// with common beginnings of all lengths, short and long ones, with room for few and for many.
#include "engine/evaluate/text_scores.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine/evaluate/token_scores.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

struct Text {
  std::vector<TokenId> tokens;
  size_t first = 1;
  std::vector<double> log_probs;
  std::vector<TokenId> likeliest;
};

// Texts that branch off each other.
std::vector<Text> RandomTexts(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  std::vector<Text> texts;
  for (size_t i = 0; i < count; ++i) {
    Text text;
    if (i > 0 && random() % 4 != 0) {
      const auto& other = texts[random() % i].tokens;
      const auto kept = static_cast<int64_t>(random() % other.size());
      text.tokens.assign(other.begin(), other.begin() + kept);
    }
    const auto rest = RandomTokens(2 + random() % (random() % 3 == 0 ? 120 : 20),
                                   seed + 1 + static_cast<uint32_t>(i));
    text.tokens.insert(text.tokens.end(), rest.begin(), rest.end());
    text.first = 1 + random() % (text.tokens.size() - 1);
    text.log_probs.resize(text.tokens.size() - text.first);
    text.likeliest.resize(text.tokens.size() - text.first);
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<evaluate::ScoredText> Wanted(std::vector<Text>& texts) {
  std::vector<evaluate::ScoredText> wanted;
  for (Text& text : texts) {
    wanted.push_back({text.tokens, text.first, text.log_probs, text.likeliest});
  }
  return wanted;
}

TEST(TextScores, AreThoseOfEachTextAlone) {
  for (const TinyShape& shape : {TinyShape(), MixedShape(24)}) {
    const auto model = OpenTiny(shape, OwnGemm());
    for (const int64_t sequences : {1, 2, 9}) {
      SessionOptions options = Options(KvType::kF32, sequences);
      options.strict = true;
      const auto runner = OpenRunner(model, options);
      std::vector<Text> texts = RandomTexts(static_cast<uint32_t>(sequences), 24);
      ExpectOk(evaluate::ScoreTexts(*runner, Wanted(texts)));
      EXPECT_EQ(runner->stats().sequences, 0);
      for (const Text& text : texts) {
        const auto session = OpenSession(model, options);
        const auto alone = evaluate::ScoreTokens(*session, text.tokens, 1);
        ASSERT_TRUE(alone.ok());
        for (size_t i = 0; i < text.log_probs.size(); ++i) {
          const evaluate::TokenScore& expected = (*alone)[text.first - 1 + i];
          // One arithmetic, so the same bits.
          ASSERT_EQ(text.log_probs[i], expected.log_prob) << i << " of " << text.tokens.size();
          ASSERT_EQ(text.likeliest[i], expected.top[0].id);
        }
      }
    }
  }
}

TEST(TextScores, CommonBeginningsAreComputedOnce) {
  const auto model = OpenTiny(TinyShape(), OwnGemm());
  const auto runner = OpenRunner(model, Options(KvType::kF32, 8));
  std::vector<Text> texts(4);
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i].tokens = RandomTokens(100, 1);
    const auto choice = RandomTokens(5, static_cast<uint32_t>(10 + i));
    texts[i].tokens.insert(texts[i].tokens.end(), choice.begin(), choice.end());
    texts[i].first = 100;
    texts[i].log_probs.resize(5);
    texts[i].likeliest.resize(5);
  }
  ExpectOk(evaluate::ScoreTexts(*runner, Wanted(texts)));
  // 99 tokens before the one whose row predicts the first choice's token, then 5 rows a choice.
  EXPECT_EQ(runner->stats().tokens_processed, 99u + 4 * 5);
  EXPECT_LE(runner->stats().passes, 3u);
}

TEST(TextScores, RefuseWhatCannotBeScored) {
  const auto model = OpenTiny(TinyShape(), OwnGemm());
  SessionOptions options = Options(KvType::kF32, 1);
  options.context = 16;
  const auto runner = OpenRunner(model, options);
  const std::vector<TokenId> tokens = RandomTokens(18, 1);
  const auto refusal = [&](size_t count, size_t first) {
    const evaluate::ScoredText text{.tokens = std::span(tokens).first(count), .first = first};
    const Status status = evaluate::ScoreTexts(*runner, {&text, 1});
    return status.ok() ? "" : std::string(ErrorCodeName(status.error().code));
  };
  EXPECT_EQ(refusal(5, 0), "INVALID");
  EXPECT_EQ(refusal(5, 5), "INVALID");
  EXPECT_EQ(refusal(0, 1), "INVALID");
  EXPECT_EQ(refusal(18, 1), "CONTEXT_FULL");
  EXPECT_EQ(refusal(17, 1), "");
  EXPECT_EQ(runner->stats().sequences, 0);
}

}  // namespace
}  // namespace kvant::test
