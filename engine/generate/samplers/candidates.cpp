#include "engine/generate/samplers/candidates.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/generate/portable_math.h"

namespace kvant {
namespace {

// e^-28 is less than 2^-40, the least weight above 0.
constexpr double kExponentNone = -28;
// An exponent whose weight is 0.
constexpr double kExponentZero = -29;

constexpr size_t kWeightsAtOnce = 256;

// The total order of candidates: likelier first, then the lower id.
constexpr auto kLikelierCandidate = [](const TokenCandidate& a, const TokenCandidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

}  // namespace

Candidates::Candidates(size_t vocab, size_t list_max) : row_(vocab) {
  list_.reserve(std::min(vocab, list_max));
}

void Candidates::Start(std::span<const float> logits) {
  SanitizeRow(logits, row_);
  is_list_ = false;
  list_.clear();
  sorted_ = 0;
  temperature_ = 1;
}

void Candidates::ApplyTemperature() {
  if (temperature_ == 1) return;
  const auto scaled = [&](float logit) {
    return Sanitize(static_cast<float>(static_cast<double>(logit) / temperature_));
  };
  if (is_list_) {
    for (TokenCandidate& candidate : list_) candidate.logit = scaled(candidate.logit);
  } else {
    std::transform(row_.begin(), row_.end(), row_.begin(), scaled);
  }
  temperature_ = 1;
}

void Candidates::Change(std::span<const TokenId> ids,
                        const std::function<float(size_t, float)>& change) {
  if (ids.empty()) return;
  ApplyTemperature();
  if (!is_list_) {
    for (size_t k = 0; k < ids.size(); ++k) {
      float& logit = row_[static_cast<size_t>(ids[k])];
      logit = Sanitize(change(k, logit));
    }
    return;
  }
  places_.resize(row_.size());
  for (size_t i = 0; i < list_.size(); ++i) {
    places_[static_cast<size_t>(list_[i].id)] = static_cast<int32_t>(i) + 1;
  }
  for (size_t k = 0; k < ids.size(); ++k) {
    const int32_t place = places_[static_cast<size_t>(ids[k])];
    if (place == 0) continue;
    float& logit = list_[static_cast<size_t>(place) - 1].logit;
    logit = Sanitize(change(k, logit));
  }
  for (const TokenCandidate& candidate : list_) places_[static_cast<size_t>(candidate.id)] = 0;
  std::erase_if(list_, [](const TokenCandidate& c) { return c.logit == kLogitNone; });
  sorted_ = 0;
}

// The `count` likeliest tokens, in no order, without sorting the vocabulary: what is not above the
// weakest of the best 2 * count so far is passed over.
void Candidates::Gather(size_t count) {
  float threshold = kLogitNone;  // a later token must exceed it: ties go to the lower id
  const auto cut = [&] {
    const auto last = list_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(list_.begin(), last, list_.end(), kLikelierCandidate);
    threshold = last->logit;
    list_.resize(count);
  };
  for (size_t id = 0; id < row_.size(); ++id) {
    if (!(row_[id] > threshold)) continue;
    list_.push_back({row_[id], static_cast<TokenId>(id), 0});
    if (list_.size() == 2 * count) cut();
  }
  if (list_.size() > count) cut();
}

void Candidates::KeepLikeliest(size_t count) {
  if (!is_list_) {
    if (count >= row_.size()) return;
    is_list_ = true;
    Gather(count);
  }
  SortAll();
  Truncate(count);
}

bool Candidates::MakeList() {
  if (!is_list_) {
    is_list_ = true;
    list_.resize(row_.size());
    size_t count = 0;
    for (size_t id = 0; id < row_.size(); ++id) {
      list_[count] = {row_[id], static_cast<TokenId>(id), 0};
      count += row_[id] > kLogitNone ? 1 : 0;
    }
    list_.resize(count);
  }
  return !list_.empty();
}

void Candidates::ComputeWeights() {
  float best = kLogitNone;
  for (const TokenCandidate& candidate : list_) best = std::max(best, candidate.logit);
  weight_total_ = 0;
  const double distance_none = kExponentNone * temperature_;
  std::array<double, kWeightsAtOnce> exponents;
  for (size_t begin = 0; begin < list_.size(); begin += kWeightsAtOnce) {
    const std::span part = std::span(list_).subspan(begin);
    const std::span some = part.first(std::min(part.size(), kWeightsAtOnce));
    for (size_t i = 0; i < some.size(); ++i) {
      const double distance = static_cast<double>(some[i].logit) - static_cast<double>(best);
      exponents[i] = distance < distance_none ? kExponentZero : distance / temperature_;
    }
    PortableExps(std::span(exponents).first(some.size()));
    for (size_t i = 0; i < some.size(); ++i) {
      some[i].weight = static_cast<uint64_t>(static_cast<int64_t>(exponents[i] * kWeightOne));
      weight_total_ += some[i].weight;
    }
  }
}

void Candidates::Sort(size_t count) {
  count = std::min(count, list_.size());
  if (count <= sorted_) return;
  const size_t end = std::min(list_.size(), std::max({count, 4 * sorted_, size_t{64}}));
  const auto begin = list_.begin();
  std::partial_sort(begin + static_cast<std::ptrdiff_t>(sorted_),
                    begin + static_cast<std::ptrdiff_t>(end), list_.end(), kLikelierCandidate);
  sorted_ = end;
}

void Candidates::Truncate(size_t count) {
  Sort(count);
  if (count >= list_.size()) return;
  list_.resize(count);
  sorted_ = count;
}

void Candidates::DropFirst(size_t count) {
  Sort(count);
  count = std::min(count, list_.size());
  list_.erase(list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(count));
  sorted_ -= count;
}

void Candidates::Replace(std::vector<TokenCandidate>& kept) {
  std::swap(list_, kept);
  sorted_ = 0;
}

void Candidates::SetLogits(const std::function<float(const TokenCandidate&)>& change) {
  for (TokenCandidate& candidate : list_) candidate.logit = Sanitize(change(candidate));
  temperature_ = 1;
  sorted_ = 0;
}

size_t Candidates::Draw(Xoshiro256& random) {
  ComputeWeights();
  const uint64_t target = random.Below(weight_total_);
  uint64_t sum = 0;
  for (size_t i = 0;; ++i) {
    Sort(i + 1);
    sum += list_[i].weight;
    if (sum > target) return i;
  }
}

}  // namespace kvant
