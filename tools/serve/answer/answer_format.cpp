#include "tools/serve/answer/answer_format.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/system_random.h"

namespace kvant::tools {
namespace {

constexpr double kLeastLogProb = -9999.0;

double PerSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

std::string TextOfEvents(const Events& events, const AnswerFormat& format) {
  std::string out;
  for (const Json& event : events) {
    const auto type = event.find("type");
    if (format.names_events() && type != event.end()) {
      out += "event: " + type->get<std::string>() + "\n";
    }
    out += "data: " + Dump(event) + "\n\n";
  }
  return out;
}

void AddTextTo(SampleAnswer& answer, AnswerPart part, std::string_view text) {
  const bool thinks = part == AnswerPart::kReasoning;
  const auto kind = thinks ? AnswerBlock::Kind::kReasoning : AnswerBlock::Kind::kContent;
  (thinks ? answer.reasoning : answer.content) += text;
  if (text.empty()) return;
  if (answer.blocks.empty() || answer.blocks.back().kind != kind) {
    answer.blocks.push_back({.kind = kind});
  }
  answer.blocks.back().text += text;
}

int64_t SecondsOfClock() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Json TimingsJson(const SampleAnswer& sample) {
  const int64_t prompt = sample.prompt_tokens - sample.cached_tokens;
  const double prompt_ms = sample.prompt_seconds * 1e3;
  const double predicted_ms = sample.completion_seconds * 1e3;
  // The first token comes from the prompt's last row, and takes no step.
  const int64_t steps = std::max<int64_t>(sample.completion_tokens - 1, 0);
  const auto per_token = [](double ms, int64_t count) {
    return count > 0 ? ms / static_cast<double>(count) : 0;
  };
  Json out = {{"cache_n", sample.cached_tokens},
              {"prompt_n", prompt},
              {"prompt_ms", prompt_ms},
              {"prompt_per_token_ms", per_token(prompt_ms, prompt)},
              {"prompt_per_second", PerSecond(prompt, sample.prompt_seconds)},
              {"predicted_n", sample.completion_tokens},
              {"predicted_ms", predicted_ms},
              {"predicted_per_token_ms", per_token(predicted_ms, steps)},
              {"predicted_per_second", PerSecond(steps, sample.completion_seconds)}};
  if (sample.drafted_tokens > 0) {
    out["draft_n"] = sample.drafted_tokens;
    out["draft_n_accepted"] = sample.accepted_tokens;
  }
  return out;
}

Json ProgressJson(const SampleAnswer& sample, const PromptProgress& progress) {
  return {{"total", sample.prompt_tokens},
          {"cache", progress.cached},
          {"processed", progress.done},
          {"time_ms", std::llround(progress.seconds * 1e3)}};
}

Json LogProbJson(double log_prob) { return std::isfinite(log_prob) ? log_prob : kLeastLogProb; }

Json LogProbJson(const Tokenizer& tokenizer, const TokenLogProb& one) {
  const bool known = one.id < tokenizer.vocab_size();
  const std::string bytes = known ? tokenizer.TokenBytes(one.id, {.special = true}) : "";
  Json numbers = Json::array();
  for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  return {{"token", bytes}, {"logprob", LogProbJson(one.log_prob)}, {"bytes", std::move(numbers)}};
}

std::string RandomId(std::string_view prefix, int length) {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuv";
  std::string id(prefix);
  uint32_t bits = 0;
  for (int i = 0; i < length; ++i) {
    if (i % 6 == 0) bits = SystemRandom();
    id.push_back(kLetters[bits % kLetters.size()]);
    bits /= static_cast<uint32_t>(kLetters.size());
  }
  return id;
}

int64_t CountCharacters(std::string_view text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::string FinishReasonOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
    case FinishReason::kContext:
    case FinishReason::kMemory:
    case FinishReason::kDeadline: return "length";
    default: return "stop";
  }
}

}  // namespace kvant::tools
