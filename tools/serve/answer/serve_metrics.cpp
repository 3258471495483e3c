#include "tools/serve/answer/serve_metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvant::tools {
namespace {

std::string Head(std::string_view name, std::string_view type, std::string_view help) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

template <class Number>
std::string Line(std::string_view name, std::string_view type, std::string_view help,
                 Number value) {
  return Head(name, type, help) + fmt::format("{} {}\n", name, value);
}

template <class Number>
std::string Count(std::string_view name, std::string_view help, Number value) {
  return Line(name, "counter", help, value);
}

template <class Number>
std::string Gauge(std::string_view name, std::string_view help, Number value) {
  return Line(name, "gauge", help, value);
}

double MeanOf(uint64_t sum, double by) { return by > 0 ? static_cast<double>(sum) / by : 0; }

}  // namespace

std::string GaugeLines(std::string_view name, std::string_view help, uint64_t value) {
  return Gauge(name, help, value);
}

void Histogram::Add(double value) {
  const auto place = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  ++counts_[static_cast<size_t>(place)];
  sum_ += value;
}

std::string Histogram::Lines(std::string_view name, std::string_view help) const {
  std::string out = Head(name, "histogram", help);
  uint64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, below);
  }
  return out + fmt::format("{}_sum {}\n{}_count {}\n", name, sum_, name, below);
}

void ServeMetrics::CountAnswer(const std::string& path, int status) {
  const std::lock_guard lock(mutex_);
  ++answers_[{path, status}];
}

void ServeMetrics::CountUnknownFields(int64_t count) {
  const std::lock_guard lock(mutex_);
  unknown_fields_ += static_cast<uint64_t>(count);
}

void ServeMetrics::CountTokens(const TokenCounts& counts) {
  const std::lock_guard lock(mutex_);
  tokens_.prompt += counts.prompt;
  tokens_.cached += counts.cached;
  tokens_.completion += counts.completion;
  tokens_.reasoning += counts.reasoning;
}

void ServeMetrics::CountClosed() {
  const std::lock_guard lock(mutex_);
  ++closed_;
}

void ServeMetrics::CountGenerated(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  generated_ += static_cast<uint64_t>(tokens);
}

void ServeMetrics::CountLength(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  length_max_ = std::max(length_max_, tokens);
}

void ServeMetrics::CountGuesses(const Generation& text) {
  const std::lock_guard lock(mutex_);
  drafts_ += static_cast<uint64_t>(text.drafts);
  guessed_ += static_cast<uint64_t>(text.drafted_tokens);
  right_ += static_cast<uint64_t>(text.accepted_tokens);
}

void ServeMetrics::AddFirstToken(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.Add(seconds);
}

void ServeMetrics::AddTokenGap(double seconds) {
  const std::lock_guard lock(mutex_);
  token_gap_.Add(seconds);
}

std::string ServeMetrics::Lines(const SchedulerCounters& counters, int64_t sequences,
                                size_t connections) const {
  const std::lock_guard lock(mutex_);
  // llama-server's names and meanings first.
  std::string out =
      Count("llamacpp:prompt_tokens_total", "Tokens of prompts that were processed.",
            counters.tokens_prefilled) +
      Count("llamacpp:prompt_tokens_cached_total", "Tokens of prompts that were known.",
            counters.tokens_reused) +
      Count("llamacpp:prompt_seconds_total", "Seconds in which prompts were processed.",
            counters.prefill_seconds) +
      Count("llamacpp:tokens_predicted_total", "Tokens of texts that were generated.", generated_) +
      Count("llamacpp:tokens_predicted_seconds_total", "Seconds in which texts were made.",
            counters.decode_seconds) +
      Count("llamacpp:n_decode_total", "Steps.", counters.rounds) +
      Count("llamacpp:n_tokens_max", "Most tokens of a text with its prompt.", length_max_) +
      Count("llamacpp:spec_decode_num_drafts_total", "Steps of a text with guesses.", drafts_) +
      Count("llamacpp:spec_decode_num_draft_tokens_total", "Tokens of drafts.", guessed_) +
      Count("llamacpp:spec_decode_num_accepted_tokens_total", "Of these, right ones.", right_) +
      Gauge("llamacpp:prompt_tokens_seconds", "Tokens of prompts processed in a second.",
            MeanOf(counters.tokens_prefilled, counters.prefill_seconds)) +
      Gauge("llamacpp:predicted_tokens_seconds", "Tokens of texts processed in a second.",
            MeanOf(counters.tokens_generated, counters.decode_seconds)) +
      Gauge("llamacpp:n_busy_slots_per_decode", "Texts in a step, in the mean.",
            MeanOf(counters.parts, static_cast<double>(counters.rounds))) +
      Gauge("llamacpp:requests_processing", "Texts that are being made.", counters.running) +
      Gauge("llamacpp:requests_deferred", "Texts that wait.", counters.waiting);
  out +=
      Count("kvant_texts_submitted_total", "Texts that were asked for.", counters.submitted) +
      Count("kvant_texts_ended_total", "Texts that have ended, in whatever way.", counters.ended) +
      Count("kvant_texts_failed_total", "Texts that have ended with an error.", counters.failed) +
      Count("kvant_texts_cancelled_total", "Texts that were cancelled.", counters.cancelled) +
      Count("kvant_texts_refused_total", "Requests that a full queue has refused.",
            counters.refused) +
      Count("kvant_preemptions_total", "Times that a text had to wait for memory.",
            counters.preemptions) +
      Gauge("kvant_sequences_max", "Texts that there may be at the same time.", sequences) +
      Gauge("kvant_connections", "Connections.", connections) +
      Gauge("kvant_blocks_used", "Blocks of the KV cache in use.", counters.blocks.used) +
      Gauge("kvant_blocks_shared", "Blocks in use by several.", counters.blocks.shared) +
      Gauge("kvant_blocks_free", "Blocks that may still be used.", counters.blocks.free);
  out +=
      Count("kvant_usage_prompt_tokens_total", "Sum of usage.prompt_tokens.", tokens_.prompt) +
      Count("kvant_usage_cached_tokens_total", "Sum of cached_tokens in usages.", tokens_.cached) +
      Count("kvant_usage_completion_tokens_total", "Sum of usage.completion_tokens.",
            tokens_.completion) +
      Count("kvant_usage_reasoning_tokens_total", "Sum of reasoning_tokens in usages.",
            tokens_.reasoning) +
      Count("kvant_clients_left_total", "Answers that a client did not wait for.", closed_) +
      Count("kvant_unknown_fields_total", "Fields of requests that have no effect.",
            unknown_fields_);
  out += Head("kvant_answers_total", "counter", "Answers by path and status.");
  for (const auto& [key, count] : answers_) {
    out += fmt::format("kvant_answers_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first,
                       key.second, count);
  }
  out += first_token_.Lines("kvant_first_token_seconds", "From a request to its first token.");
  out += token_gap_.Lines("kvant_token_gap_seconds", "Between two tokens of a text.");
  return out;
}

}  // namespace kvant::tools
