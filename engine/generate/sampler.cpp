#include "kvant/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <utility>

#include "base/result.h"
#include "engine/generate/portable_math.h"

namespace kvant {
namespace {

constexpr int32_t kVocabMax = 1 << 24;

// Windows up to here are reserved at creation; larger ones grow as they fill.
constexpr size_t kWindowReserve = 4096;

Status CheckRange(const char* name, float value, float low, float high, const char* range) {
  if (value >= low && value <= high) return {};
  return MakeError(ErrorCode::kInvalid, "{}: expected {}, found {}", name, range, value);
}

Status CheckOptions(const SamplingOptions& options, int32_t vocab_size) {
  constexpr float kMax = std::numeric_limits<float>::max();
  if (vocab_size < 1 || vocab_size > kVocabMax) {
    return MakeError(ErrorCode::kInvalid, "vocabulary: expected 1 to {} tokens, found {}",
                     kVocabMax, vocab_size);
  }
  KVANT_TRY(CheckRange("temperature", options.temperature, -kMax, kMax, "a finite number"));
  KVANT_TRY(CheckRange("top-p", options.top_p, 0, 1, "0 to 1"));
  KVANT_TRY(CheckRange("min-p", options.min_p, 0, 1, "0 to 1"));
  KVANT_TRY(CheckRange("typical", options.typical, 0, 1, "0 to 1"));
  KVANT_TRY(CheckRange("repeat-penalty", options.repeat_penalty, std::numeric_limits<float>::min(),
                       kMax, "a positive number"));
  KVANT_TRY(
      CheckRange("presence-penalty", options.presence_penalty, -kMax, kMax, "a finite number"));
  KVANT_TRY(
      CheckRange("frequency-penalty", options.frequency_penalty, -kMax, kMax, "a finite number"));
  if (options.repeat_last_n < -1) {
    return MakeError(ErrorCode::kInvalid, "repeat-last-n: expected -1 or more, found {}",
                     options.repeat_last_n);
  }
  for (const LogitBias& entry : options.logit_bias) {
    if (entry.token < 0 || entry.token >= vocab_size) {
      return MakeError(ErrorCode::kInvalid, "logit-bias: token {} is outside the vocabulary of {}",
                       entry.token, vocab_size);
    }
    if (entry.bias != entry.bias) {
      return MakeError(ErrorCode::kInvalid, "logit-bias: the bias of token {} is not a number",
                       entry.token);
    }
  }
  return {};
}

// The total order of candidates: likelier first, then the lower id.
constexpr auto kHigherLogit = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

}  // namespace

Result<Sampler> Sampler::Create(const SamplingOptions& options, int32_t vocab_size) {
  KVANT_TRY(CheckOptions(options, vocab_size));
  uint64_t seed = 0;
  if (options.seed.has_value()) {
    seed = *options.seed;
  } else {
    std::random_device device;
    seed = device();
  }
  return Sampler(options, vocab_size, seed);
}

Sampler::Sampler(const SamplingOptions& options, int32_t vocab_size, uint64_t seed)
    : options_(options), seed_(seed), random_(seed) {
  const size_t vocab = static_cast<size_t>(vocab_size);
  logits_.resize(vocab);
  const bool all = options.top_k <= 0 || options.top_k >= vocab_size;
  // Gathering k candidates keeps up to 2k at a time.
  candidates_.reserve(all ? vocab : std::min(vocab, 2 * static_cast<size_t>(options.top_k)));
  if (options.typical < 1.0f) {
    surprises_.reserve(candidates_.capacity());
    kept_.reserve(candidates_.capacity());
  }
  if (!penalties_active()) return;
  counts_.resize(vocab);
  present_.reserve(vocab);
  if (options.repeat_last_n > 0) {
    window_.reserve(std::min(static_cast<size_t>(options.repeat_last_n), kWindowReserve));
  }
}

bool Sampler::penalties_active() const {
  return options_.repeat_last_n != 0 &&
         (options_.repeat_penalty != 1.0f || options_.presence_penalty != 0.0f ||
          options_.frequency_penalty != 0.0f);
}

void Sampler::Forbid(TokenId token) {
  if (token < 0 || static_cast<size_t>(token) >= logits_.size()) return;
  options_.logit_bias.push_back({token, kLogitNone});
}

void Sampler::Accept(TokenId token) {
  if (counts_.empty() || token < 0 || static_cast<size_t>(token) >= counts_.size()) return;
  if (counts_[static_cast<size_t>(token)]++ == 0) present_.push_back(token);
  if (options_.repeat_last_n < 0) return;
  if (window_.size() < static_cast<size_t>(options_.repeat_last_n)) {
    window_.push_back(token);
    return;
  }
  const TokenId oldest = std::exchange(window_[window_next_], token);
  window_next_ = (window_next_ + 1) % window_.size();
  if (--counts_[static_cast<size_t>(oldest)] == 0) {
    *std::find(present_.begin(), present_.end(), oldest) = present_.back();
    present_.pop_back();
  }
}

Result<TokenId> Sampler::Sample(std::span<const float> logits) {
  if (logits.size() != logits_.size()) {
    return MakeError(ErrorCode::kInvalid, "sampling: expected {} logits, found {}", logits_.size(),
                     logits.size());
  }
  AdjustLogits(logits);
  const auto best = std::max_element(logits_.begin(), logits_.end());
  if (*best == kLogitNone) {
    return MakeError(ErrorCode::kInvalid, "sampling: no token has a finite logit");
  }
  if (options_.temperature <= 0) return static_cast<TokenId>(best - logits_.begin());
  TakeTopK();
  ApplyTypical();
  ApplyTopP();
  ApplyMinP();
  return Draw();
}

void Sampler::AdjustLogits(std::span<const float> logits) {
  std::transform(logits.begin(), logits.end(), logits_.begin(), Sanitize);
  for (const LogitBias& entry : options_.logit_bias) {
    float& logit = logits_[static_cast<size_t>(entry.token)];
    logit = Sanitize(logit + entry.bias);
  }
  for (const TokenId token : present_) {
    float& logit = logits_[static_cast<size_t>(token)];
    logit = logit <= 0 ? logit * options_.repeat_penalty : logit / options_.repeat_penalty;
    const float count = static_cast<float>(counts_[static_cast<size_t>(token)]);
    logit -= count * options_.frequency_penalty + options_.presence_penalty;
    logit = Sanitize(logit);
  }
}

// The `count` likeliest tokens, in no order, without sorting the vocabulary: what is not above the
// weakest of the best 2 * count so far is passed over.
void Sampler::Gather(size_t count) {
  candidates_.clear();
  float threshold = kLogitNone;  // a later token must exceed it: ties go to the lower id
  const auto cut = [&] {
    const auto last = candidates_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(candidates_.begin(), last, candidates_.end(), kHigherLogit);
    threshold = last->logit;
    candidates_.resize(count);
  };
  for (size_t id = 0; id < logits_.size(); ++id) {
    if (!(logits_[id] > threshold)) continue;
    candidates_.push_back({logits_[id], static_cast<TokenId>(id), 0});
    if (candidates_.size() == 2 * count) cut();
  }
  if (candidates_.size() > count) cut();
}

void Sampler::TakeTopK() {
  sorted_ = 0;
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < logits_.size()) {
    Gather(static_cast<size_t>(options_.top_k));
    SortPrefix(candidates_.size());
    return;
  }
  candidates_.clear();
  for (size_t id = 0; id < logits_.size(); ++id) {
    if (logits_[id] > kLogitNone) {
      candidates_.push_back({logits_[id], static_cast<TokenId>(id), 0});
    }
  }
}

// Softmax at a temperature as integers, relative to the likeliest candidate.
void Sampler::ComputeWeights(double temperature) {
  float best = kLogitNone;
  for (const Candidate& candidate : candidates_) best = std::max(best, candidate.logit);
  weight_total_ = 0;
  for (Candidate& candidate : candidates_) {
    const double distance = static_cast<double>(candidate.logit) - static_cast<double>(best);
    candidate.weight = static_cast<uint64_t>(PortableExp(distance / temperature) * kWeightOne);
    weight_total_ += candidate.weight;
  }
}

// Brings at least the first `count` candidates into order; the prefix grows geometrically, so that
// walking to a stop somewhere costs little more than finding it.
void Sampler::SortPrefix(size_t count) {
  count = std::min(count, candidates_.size());
  if (count <= sorted_) return;
  const size_t end = std::min(candidates_.size(), std::max({count, 4 * sorted_, size_t{64}}));
  const auto begin = candidates_.begin();
  std::partial_sort(begin + static_cast<std::ptrdiff_t>(sorted_),
                    begin + static_cast<std::ptrdiff_t>(end), candidates_.end(), kHigherLogit);
  sorted_ = end;
}

// Drops all but the first `count` candidates, min_keep respected.
void Sampler::Keep(size_t count) {
  count = std::max(count, static_cast<size_t>(std::max(options_.min_keep, 1)));
  SortPrefix(count);
  if (count >= candidates_.size()) return;
  candidates_.resize(count);
  sorted_ = count;
}

// Locally typical sampling (Meister et al., 2022): keeps the tokens whose surprise, -log p, is
// nearest to the entropy until their probabilities together exceed p.
void Sampler::ApplyTypical() {
  if (options_.typical >= 1.0f) return;
  ComputeWeights(1.0);
  const double total = static_cast<double>(weight_total_);
  const double log_total = PortableLog(total);
  surprises_.clear();
  double entropy = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const double weight = static_cast<double>(candidates_[i].weight);
    if (weight == 0) continue;  // p log p is 0 there, and such a token is never typical
    const double surprise = log_total - PortableLog(weight);
    entropy += weight / total * surprise;
    surprises_.push_back({surprise, i});
  }
  for (Surprise& entry : surprises_) entry.distance = std::fabs(entry.distance - entropy);
  std::sort(surprises_.begin(), surprises_.end(), [&](const Surprise& a, const Surprise& b) {
    return std::tuple(a.distance, candidates_[a.index].id) <
           std::tuple(b.distance, candidates_[b.index].id);
  });
  const size_t keep_min = static_cast<size_t>(std::max(options_.min_keep, 1));
  const double enough = total * static_cast<double>(options_.typical);
  uint64_t sum = 0;
  kept_.clear();
  for (const Surprise& entry : surprises_) {
    kept_.push_back(candidates_[entry.index]);
    sum += kept_.back().weight;
    if (static_cast<double>(sum) > enough && kept_.size() >= keep_min) break;
  }
  std::swap(candidates_, kept_);
  sorted_ = 0;
}

void Sampler::ApplyTopP() {
  if (options_.top_p >= 1.0f) return;
  ComputeWeights(1.0);
  const double enough = static_cast<double>(weight_total_) * static_cast<double>(options_.top_p);
  uint64_t sum = 0;
  size_t count = 0;
  while (count < candidates_.size()) {
    SortPrefix(count + 1);
    sum += candidates_[count].weight;
    ++count;
    if (static_cast<double>(sum) >= enough) break;
  }
  Keep(count);
}

void Sampler::ApplyMinP() {
  if (options_.min_p <= 0) return;
  SortPrefix(1);
  // p_i >= min_p * p_max, said of logits.
  const double least =
      static_cast<double>(candidates_[0].logit) + PortableLog(static_cast<double>(options_.min_p));
  size_t count = 1;
  while (count < candidates_.size()) {
    SortPrefix(count + 1);
    if (static_cast<double>(candidates_[count].logit) < least) break;
    ++count;
  }
  Keep(count);
}

TokenId Sampler::Draw() {
  ComputeWeights(static_cast<double>(options_.temperature));
  const uint64_t target = random_.Below(weight_total_);
  uint64_t sum = 0;
  for (size_t i = 0;; ++i) {
    SortPrefix(i + 1);
    sum += candidates_[i].weight;
    if (sum > target) return candidates_[i].id;
  }
}

}  // namespace kvant
