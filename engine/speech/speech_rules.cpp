#include "engine/speech/speech_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvant::speech {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Tokens from `first` up to, and without, `last`.
void Ban(std::span<float> logits, int64_t first, int64_t last) {
  const auto size = std::ssize(logits);
  first = std::clamp<int64_t>(first, 0, size);
  last = std::clamp<int64_t>(last, first, size);
  std::fill(logits.begin() + first, logits.begin() + last, kNever);
}

float LargestOf(std::span<const float> logits) {
  return logits.empty() ? kNever : *std::max_element(logits.begin(), logits.end());
}

double LogSumExp(std::span<const float> logits) {
  const float largest = LargestOf(logits);
  if (!(largest > kNever)) return double{kNever};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{largest});
  return double{largest} + std::log(sum);
}

void BanByPairs(const SpeechTokens& tokens, std::span<const TokenId> generated,
                std::span<float> logits) {
  const size_t size = generated.size();
  const bool after_time = size >= 1 && tokens.is_time(generated[size - 1]);
  const bool before_that = size < 2 || tokens.is_time(generated[size - 2]);
  if (after_time && before_that) Ban(logits, tokens.first_time, std::ssize(logits));
  if (after_time && !before_that) Ban(logits, 0, tokens.end);
  const auto last = std::find_if(generated.rbegin(), generated.rend(),
                                 [&](TokenId token) { return tokens.is_time(token); });
  if (last == generated.rend()) return;
  // The second time of a pair may be the first one again.
  const bool opens_next = after_time && !before_that;
  Ban(logits, tokens.first_time, *last + (opens_next ? 0 : 1));
}

class RulesStage final : public CopiedLogitStage<RulesStage> {
 public:
  explicit RulesStage(std::shared_ptr<const SpeechRules> rules) : rules_(std::move(rules)) {}

  Status Apply(const LogitText& text, std::span<float> row) override {
    ApplySpeechRules(*rules_, text.tokens.subspan(static_cast<size_t>(text.prompt)), row);
    const double total = LogSumExp(row);
    if (!(total > double{kNever})) return {};  // nothing is left, which is an error later on
    for (float& value : row) value = static_cast<float>(double{value} - total);
    return {};
  }
  bool reads_tokens() const override { return true; }
  bool keeps_state() const override { return false; }

 private:
  std::shared_ptr<const SpeechRules> rules_;
};

class SumStage final : public CopiedLogitStage<SumStage> {
 public:
  explicit SumStage(std::shared_ptr<double> sum) : sum_(std::move(sum)) {}

  Status Apply(const LogitText& /*text*/, std::span<float> row) override {
    row_.assign(row.begin(), row.end());
    log_total_ = LogSumExp(row);
    return {};
  }
  void Accept(TokenId token, TokenFrom from) override {
    if (from == TokenFrom::kText) *sum_ += double{row_[static_cast<size_t>(token)]} - log_total_;
  }

 private:
  std::shared_ptr<double> sum_;
  std::vector<float> row_;  // of the next token
  double log_total_ = 0;
};

}  // namespace

void ApplySpeechRules(const SpeechRules& rules, std::span<const TokenId> generated,
                      std::span<float> logits) {
  const SpeechTokens& tokens = rules.tokens;
  const auto size = std::ssize(logits);
  if (generated.empty()) {
    for (const TokenId token : tokens.blank) Ban(logits, token, token + 1);
  }
  for (const TokenId token : rules.suppressed) Ban(logits, token, token + 1);
  if (!rules.times) return;
  Ban(logits, tokens.no_times, tokens.no_times + 1);
  BanByPairs(tokens, generated, logits);
  if (generated.empty()) {
    Ban(logits, 0, tokens.first_time);
    if (rules.first_time_max.has_value()) {
      Ban(logits, tokens.first_time + *rules.first_time_max + 1, size);
    }
  }
  const auto first_time = static_cast<size_t>(tokens.first_time);
  if (LogSumExp(logits.subspan(first_time)) > double{LargestOf(logits.first(first_time))}) {
    Ban(logits, 0, tokens.first_time);
  }
}

LogitStageMaker SpeechRulesStage(std::shared_ptr<const SpeechRules> rules) {
  return [rules = std::move(rules)](const LogitStageSetup& /*setup*/) {
    return Result<std::unique_ptr<LogitStage>>(std::make_unique<RulesStage>(rules));
  };
}

LogitStageMaker LogProbSumStage(std::shared_ptr<double> sum) {
  return [sum = std::move(sum)](const LogitStageSetup& /*setup*/) {
    return Result<std::unique_ptr<LogitStage>>(std::make_unique<SumStage>(sum));
  };
}

}  // namespace kvant::speech
