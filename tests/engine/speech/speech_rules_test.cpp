// Which token may follow in a transcript: against the rules token by token as prose says them, and
// against openai-whisper's own filters. Compression ratios against Python's zlib.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "engine/speech/compression_ratio.h"
#include "engine/speech/speech_rules.h"
#include "tests/engine/speech/speech_noise.h"

namespace kvant::test {
namespace {

using speech::SpeechRules;

SpeechRules SmallRules() {
  SpeechRules rules;
  rules.tokens.end = kSmallEnd;
  rules.tokens.start = kSmallStart;
  rules.tokens.no_times = kSmallNoTimes;
  rules.tokens.first_time = kSmallTimes;
  rules.tokens.blank = {3, kSmallEnd};
  return rules;
}

std::vector<TokenId> LeftBy(const SpeechRules& rules, std::span<const TokenId> history,
                            std::vector<float> logits) {
  ApplySpeechRules(rules, history, logits);
  std::vector<TokenId> left;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) left.push_back(static_cast<TokenId>(i));
  }
  return left;
}

TEST(SpeechRules, TokensAreThoseThatOpenaiLeaves) {
  const nlohmann::json reference = SpeechReference("rules.json");
  SpeechRules rules = SmallRules();
  rules.suppressed = reference["suppressed"].get<std::vector<TokenId>>();
  uint64_t seed = 0;
  for (const auto& row : reference["rows"]) {
    rules.times = row["times"];
    rules.first_time_max.reset();
    if (!row["limit"].is_null()) rules.first_time_max = row["limit"].get<int64_t>();
    std::vector<float> logits = SpeechNoise(seed++, reference["size"]);
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = logits[i] * row["gain"].get<float>() +
                  (i >= kSmallTimes ? row["bonus"].get<float>() : 0.0f);
    }
    EXPECT_EQ(LeftBy(rules, row["history"].get<std::vector<TokenId>>(), logits),
              row["left"].get<std::vector<TokenId>>())
        << row;
  }
  EXPECT_EQ(seed, 600u);
}

// Whether a token may follow by the rules that look at tokens alone.
bool MayFollow(const SpeechRules& rules, const std::vector<TokenId>& history, TokenId token) {
  const auto is_time = [](TokenId id) { return id >= kSmallTimes; };
  if (std::ranges::find(rules.suppressed, token) != rules.suppressed.end()) return false;
  if (history.empty() && (token == 3 || token == kSmallEnd)) return false;
  if (!rules.times) return true;
  if (token == kSmallNoTimes) return false;
  if (history.empty()) {
    if (!is_time(token)) return false;
    return !rules.first_time_max.has_value() || token - kSmallTimes <= *rules.first_time_max;
  }
  const bool after_time = is_time(history.back());
  const bool after_pair =
      after_time && (history.size() == 1 || is_time(history[history.size() - 2]));
  // A beginning: behind it comes text. An end: behind it comes a beginning, or the end of all.
  if (after_pair && is_time(token)) return false;
  if (after_time && !after_pair && token < kSmallEnd) return false;
  if (!is_time(token)) return true;
  std::optional<TokenId> last;
  for (const TokenId id : history) {
    if (is_time(id)) last = id;
  }
  if (!last.has_value()) return true;
  const bool may_be_equal = after_time && !after_pair;
  return may_be_equal ? token >= *last : token > *last;
}

TEST(SpeechRules, TokensAreThoseThatTheRulesNameOneByOne) {
  std::mt19937 random(11);
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  constexpr int kSize = 44;
  int times_forced = 0;
  for (int round = 0; round < 100'000; ++round) {
    SpeechRules rules = SmallRules();
    rules.times = below(10) > 0;
    if (below(2) == 0) rules.first_time_max = below(16);
    for (int i = below(4); i > 0; --i) rules.suppressed.push_back(below(kSmallTimes));
    std::vector<TokenId> history;
    for (int i = below(7); i > 0; --i) {
      history.push_back(below(2) == 0 ? below(kSmallTimes) : kSmallTimes + below(14));
    }
    std::vector<float> logits;
    for (int i = 0; i < kSize; ++i) {
      logits.push_back(static_cast<float>(below(4096)) / 512.0f - (i < kSmallTimes ? 0.0f : 2.0f));
    }
    std::vector<TokenId> expected;
    long double of_times = 0;
    long double of_text = 0;
    for (TokenId token = 0; token < kSize; ++token) {
      if (!MayFollow(rules, history, token)) continue;
      expected.push_back(token);
      const long double weight =
          std::exp(static_cast<long double>(logits[static_cast<size_t>(token)]));
      if (token >= kSmallTimes) of_times += weight;
      if (token < kSmallTimes) of_text = std::max(of_text, weight);
    }
    // No rounding decides.
    if (rules.times && std::abs(of_times / of_text - 1) < 1e-12L) continue;
    if (rules.times && of_times > of_text) {
      times_forced += of_text > 0 ? 1 : 0;
      std::erase_if(expected, [](TokenId token) { return token < kSmallTimes; });
    }
    ASSERT_EQ(LeftBy(rules, history, logits), expected) << round;
  }
  EXPECT_GT(times_forced, 1000);
}

// The sum that a drawn text is ranked by: of logits as the rules have left them.
TEST(SpeechRules, SumsAreOfWhatTheRulesLeave) {
  auto sum = std::make_shared<double>(0);
  const auto stage = speech::LogProbSumStage(sum)({});
  ASSERT_TRUE(stage.ok());
  std::vector<float> row = {1, 2, -std::numeric_limits<float>::infinity(), 0.5f};
  ASSERT_TRUE((*stage)->Apply({}, row).ok());
  (*stage)->Accept(0, TokenFrom::kPrompt);
  EXPECT_EQ(*sum, 0);
  (*stage)->Accept(1, TokenFrom::kText);
  const double total = std::exp(1.0) + std::exp(2.0) + std::exp(0.5);
  EXPECT_NEAR(*sum, 2 - std::log(total), 1e-12);
  row = {0, 0, 0, 0};
  ASSERT_TRUE((*stage)->Apply({}, row).ok());
  (*stage)->Accept(3, TokenFrom::kText);
  EXPECT_NEAR(*sum, 2 - std::log(total) - std::log(4.0), 1e-12);
}

TEST(SpeechRules, RatiosAreThoseOfPythonsZlib) {
  size_t rows = 0;
  for (const auto& row : SpeechReference("ratios.json")) {
    EXPECT_EQ(speech::CompressionRatio(row["text"].get<std::string>()), row["ratio"].get<double>());
    ++rows;
  }
  EXPECT_EQ(rows, 201u);
}

}  // namespace
}  // namespace kvant::test
