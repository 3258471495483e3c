#include "kvant/beam_log_probs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/evaluate/distribution.h"
#include "engine/generate/portable_math.h"

namespace kvant {
namespace {

// The total order of tokens: likelier first, then the lower id.
constexpr auto kLikelier = [](const auto& a, const auto& b) {
  return a.log_prob != b.log_prob ? a.log_prob > b.log_prob : a.id < b.id;
};

}  // namespace

BeamLogProbs::BeamLogProbs(const BeamOptions& options, int32_t vocab_size)
    : options_(options), keep_min_(std::max<size_t>(2, options.end_tokens.size() + 1)) {
  const size_t vocab = static_cast<size_t>(vocab_size);
  row_.resize(vocab);
  if (options.repetition_penalty != 1.0f) seen_.resize(vocab);
  if (options.sample) entries_.reserve(vocab);
}

bool BeamLogProbs::needs_history() const {
  return options_.repetition_penalty != 1.0f || options_.no_repeat_ngram > 0;
}

std::span<float> BeamLogProbs::Compute(std::span<const float> logits,
                                       std::span<const TokenId> history, int64_t generated) {
  std::transform(logits.begin(), logits.end(), row_.begin(), Sanitize);
  if (options_.scoring == BeamScoring::kHf) {
    Normalize();
    ApplyBans(history, generated);
  } else {
    ApplyBans(history, generated);
    Normalize();
  }
  return row_;
}

// A row without a finite value stays as it is.
void BeamLogProbs::Normalize() {
  const evaluate::Distribution distribution = evaluate::Normalize(row_);
  if (row_[static_cast<size_t>(distribution.top)] == kLogitNone) return;
  const double log_sum = distribution.log_sum;
  for (float& value : row_) value = static_cast<float>(double{value} - log_sum);
}

void BeamLogProbs::ApplyBans(std::span<const TokenId> history, int64_t generated) {
  if (options_.repetition_penalty != 1.0f) PenalizeRepetition(history);
  if (options_.no_repeat_ngram > 0) BanRepeatedNgrams(history);
  for (const TokenId token : options_.forbidden) row_[static_cast<size_t>(token)] = kLogitNone;
  if (generated >= options_.min_new_tokens) return;
  for (const TokenId token : options_.end_tokens) row_[static_cast<size_t>(token)] = kLogitNone;
}

// Once for a token, however often it occurs.
void BeamLogProbs::PenalizeRepetition(std::span<const TokenId> history) {
  if (++call_ == 0) {
    std::fill(seen_.begin(), seen_.end(), 0);
    call_ = 1;
  }
  for (const TokenId token : history) {
    const size_t id = static_cast<size_t>(token);
    if (seen_[id] == call_) continue;
    seen_[id] = call_;
    float& value = row_[id];
    value = value < 0 ? value * options_.repetition_penalty : value / options_.repetition_penalty;
    value = Sanitize(value);
  }
}

// Whatever followed an earlier occurrence of the last n - 1 tokens.
void BeamLogProbs::BanRepeatedNgrams(std::span<const TokenId> history) {
  const size_t prefix = static_cast<size_t>(options_.no_repeat_ngram) - 1;
  if (history.size() <= prefix) return;
  const auto last = history.last(prefix);
  for (size_t begin = 0; begin + prefix < history.size(); ++begin) {
    if (!std::equal(last.begin(), last.end(), history.begin() + static_cast<ptrdiff_t>(begin))) {
      continue;
    }
    row_[static_cast<size_t>(history[begin + prefix])] = kLogitNone;
  }
}

void BeamLogProbs::Filter(std::span<float> row) {
  const bool top_k = options_.top_k > 0 && static_cast<size_t>(options_.top_k) < row.size();
  const bool top_p = options_.top_p < 1.0f;
  if (options_.temperature != 1.0f) {
    for (float& value : row) value = Sanitize(value / options_.temperature);
  }
  if (!top_k && !top_p) return;
  entries_.clear();
  for (size_t id = 0; id < row.size(); ++id) {
    if (row[id] > kLogitNone) entries_.push_back({row[id], static_cast<TokenId>(id)});
  }
  if (top_k) TakeTopK(std::max(static_cast<size_t>(options_.top_k), keep_min_));
  if (top_p) TakeTopP();
  std::fill(row.begin(), row.end(), kLogitNone);
  for (const Entry& entry : entries_) row[static_cast<size_t>(entry.id)] = entry.log_prob;
}

void BeamLogProbs::TakeTopK(size_t count) {
  if (count >= entries_.size()) return;
  std::nth_element(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(count),
                   entries_.end(), kLikelier);
  entries_.resize(count);
}

// The likeliest tokens are brought into order as far as they are needed.
void BeamLogProbs::TakeTopP() {
  if (entries_.empty()) return;
  const float best = std::min_element(entries_.begin(), entries_.end(), kLikelier)->log_prob;
  const auto weight = [best](const Entry& entry) {
    const double distance = double{entry.log_prob} - double{best};
    return static_cast<uint64_t>(PortableExp(distance) * kWeightOne);
  };
  uint64_t total = 0;
  for (const Entry& entry : entries_) total += weight(entry);
  const double enough = static_cast<double>(total) * double{options_.top_p};
  uint64_t sum = 0;
  size_t count = 0;
  size_t sorted = 0;
  while (count < entries_.size() && (count < keep_min_ || static_cast<double>(sum) < enough)) {
    if (count == sorted) {
      sorted = std::min(entries_.size(), std::max<size_t>(64, 4 * sorted));
      std::partial_sort(entries_.begin() + static_cast<ptrdiff_t>(count),
                        entries_.begin() + static_cast<ptrdiff_t>(sorted), entries_.end(),
                        kLikelier);
    }
    sum += weight(entries_[count]);
    ++count;
  }
  entries_.resize(count);
}

}  // namespace kvant
