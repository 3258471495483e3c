#include "kvant/beam_log_probs.h"

#include <algorithm>

#include "base/check.h"
#include "base/result.h"
#include "engine/generate/logit_stages/beam_processors.h"
#include "engine/generate/logit_stages/stage_row.h"
#include "engine/generate/portable_math.h"

namespace kvant {
namespace {

// The total order of tokens: likelier first, then the lower id.
constexpr auto kLikelier = [](const auto& a, const auto& b) {
  return a.log_prob != b.log_prob ? a.log_prob > b.log_prob : a.id < b.id;
};

}  // namespace

BeamLogProbs::BeamLogProbs(const BeamOptions& options, int32_t vocab_size)
    : options_(options),
      keep_min_(options.beams == 1 ? 1 : std::max<size_t>(2, options.end_tokens.size() + 1)) {
  const size_t vocab = static_cast<size_t>(vocab_size);
  row_.resize(vocab);
  if (options.sample) entries_.reserve(vocab);
  const Status added = stages_.Add({.vocab = vocab, .processors = &options_});
  KVANT_CHECK(added.ok());  // only the caller's own stages can fail
}

Status BeamLogProbs::Add(const LogitOptions& options, const Tokenizer* tokenizer) {
  return stages_.Add({.vocab = row_.size(), .tokenizer = tokenizer, .logits = &options});
}

Result<std::span<const float>> BeamLogProbs::Process(std::span<const float> logits,
                                                     const LogitText& text, LogitChain& stages) {
  SanitizeRow(logits, row_);
  KVANT_ASSIGN(const bool goes_on, stages.Apply(text, row_));
  if (!goes_on) return std::span<const float>();
  if (options_.sample) Filter();
  if (options_.renormalize && (options_.sample || !ProcessesLogits(options_))) ToLogProbs(row_);
  return std::span<const float>(row_);
}

void BeamLogProbs::Filter() {
  const bool top_k = options_.top_k > 0 && static_cast<size_t>(options_.top_k) < row_.size();
  const bool top_p = options_.top_p < 1.0f;
  if (options_.temperature != 1.0f) {
    for (float& value : row_) value = Sanitize(value / options_.temperature);
  }
  if (!top_k && !top_p) return;
  entries_.clear();
  for (size_t id = 0; id < row_.size(); ++id) {
    if (row_[id] > kLogitNone) entries_.push_back({row_[id], static_cast<TokenId>(id)});
  }
  if (top_k) TakeTopK(std::max(static_cast<size_t>(options_.top_k), keep_min_));
  if (top_p) TakeTopP();
  std::fill(row_.begin(), row_.end(), kLogitNone);
  for (const Entry& entry : entries_) row_[static_cast<size_t>(entry.id)] = entry.log_prob;
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
