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

// Maxima in this many places need not wait for each other.
constexpr size_t kMaxLanes = 8;

// As many logits are compared with a threshold at once. The compiler turns them into vectors.
constexpr size_t kComparedAtOnce = 128;

bool HasAbove(std::span<const float> logits, float threshold) {
  int found = 0;
  for (const float logit : logits) found |= logit > threshold ? 1 : 0;
  return found != 0;
}

// So few are sorted where a search by ranges ends.
constexpr size_t kSortedAtCut = 512;

// As many are sorted before a search by ranges of logits begins. A peaked row needs no more.
constexpr size_t kSortedFirst = 64;

}  // namespace

Candidates::Candidates(size_t vocab, size_t list_max) : row_(vocab) {
  list_.reserve(std::min(vocab, list_max));
}

void Candidates::Start(std::span<const float> logits) {
  SanitizeRow(logits, row_);
  is_list_ = false;  // what was on the list stays as scratch of MakeList
  sorted_ = 0;
  temperature_ = 1;
  have_weights_ = false;
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
  have_weights_ = false;
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
  list_.clear();
  float threshold = kLogitNone;  // a later token must exceed it: ties go to the lower id
  const auto cut = [&] {
    const auto last = list_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(list_.begin(), last, list_.end(), IsBefore);
    threshold = last->logit;
    list_.resize(count);
  };
  for (size_t begin = 0; begin < row_.size(); begin += kComparedAtOnce) {
    const size_t end = std::min(begin + kComparedAtOnce, row_.size());
    if (!HasAbove(std::span(row_).subspan(begin, end - begin), threshold)) continue;
    for (size_t id = begin; id < end; ++id) {
      if (!(row_[id] > threshold)) continue;
      list_.push_back({row_[id], static_cast<TokenId>(id), 0});
      if (list_.size() == 2 * count) cut();
    }
  }
  if (list_.size() > count) cut();
}

void Candidates::KeepLikeliest(size_t count) {
  if (!is_list_) {
    if (count >= row_.size()) return;
    is_list_ = true;
    have_weights_ = false;
    Gather(count);
  }
  SortAll();
  Truncate(count);
}

bool Candidates::MakeList() {
  if (!is_list_) {
    is_list_ = true;
    have_weights_ = false;
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

float Candidates::LargestLogit() const {
  std::array<float, kMaxLanes> lanes;
  lanes.fill(kLogitNone);
  size_t i = 0;
  for (; i + kMaxLanes <= list_.size(); i += kMaxLanes) {
    for (size_t k = 0; k < kMaxLanes; ++k) lanes[k] = std::max(lanes[k], list_[i + k].logit);
  }
  for (; i < list_.size(); ++i) lanes[0] = std::max(lanes[0], list_[i].logit);
  return *std::max_element(lanes.begin(), lanes.end());
}

void Candidates::ComputeWeights() {
  const float best = LargestLogit();
  weight_total_ = 0;
  if (have_weights_ && best == weights_best_ && temperature_ == weights_temperature_) {
    for (const TokenCandidate& candidate : list_) weight_total_ += candidate.weight;
    return;
  }
  have_weights_ = true;
  weights_best_ = best;
  weights_temperature_ = temperature_;
  const double distance_none = kExponentNone * temperature_;
  const double distance_zero = kExponentZero * temperature_;
  std::array<double, kWeightsAtOnce> exponents;
  for (size_t begin = 0; begin < list_.size(); begin += kWeightsAtOnce) {
    const std::span part = std::span(list_).subspan(begin);
    const std::span some = part.first(std::min(part.size(), kWeightsAtOnce));
    for (size_t i = 0; i < some.size(); ++i) {
      const double distance = static_cast<double>(some[i].logit) - static_cast<double>(best);
      exponents[i] = distance < distance_none ? distance_zero : distance;
    }
    PortableExps(std::span(exponents).first(some.size()), temperature_);
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
                    begin + static_cast<std::ptrdiff_t>(end), list_.end(), IsBefore);
  sorted_ = end;
}

void Candidates::Truncate(size_t count) {
  if (count >= list_.size()) return Sort(count);
  if (count <= std::max(kSortedFirst, sorted_)) {
    Sort(count);
  } else {
    Sort(1);
    const auto rest = list_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    const auto end = list_.begin() + static_cast<std::ptrdiff_t>(count);
    if (rest < end) std::nth_element(rest, end - 1, list_.end(), IsBefore);
  }
  list_.resize(count);
  sorted_ = std::min(sorted_, count);
}

// Where the weights of the likeliest candidates become enough: at_cut_ gets a few candidates in
// order, among which this is, and the cut says what all before them weigh. A range that holds many
// is cut into ranges again; many of one logit are cut by their ids.
template <class Enough>
RangeSums::Cut Candidates::FindCut(const Enough& enough) {
  at_cut_.clear();
  for (size_t i = 0; i < list_.size(); ++i) {
    if (list_[i].weight > 0) at_cut_.push_back(static_cast<uint32_t>(i));
  }
  RangeSums::Cut cut = {0, 0, 0};
  while (at_cut_.size() > kSortedAtCut) {
    const auto key_of = [&](uint32_t i) { return static_cast<double>(list_[i].logit); };
    double least = key_of(at_cut_[0]);
    double most = least;
    for (const uint32_t i : at_cut_) {
      least = std::min(least, key_of(i));
      most = std::max(most, key_of(i));
    }
    const auto weight = [&](size_t k) { return list_[at_cut_[k]].weight; };
    if (least < most) {
      likely_.Fill(
          at_cut_.size(), most - least, [&](size_t k) { return most - key_of(at_cut_[k]); },
          weight);
    } else {
      likely_.Fill(
          at_cut_.size(), static_cast<double>(row_.size()),
          [&](size_t k) { return static_cast<double>(list_[at_cut_[k]].id); }, weight);
    }
    const RangeSums::Cut inner = likely_.Find([&](uint64_t sum, size_t count) {
      return enough(cut.sum_before + sum, cut.count_before + count);
    });
    cut = {inner.range, cut.sum_before + inner.sum_before, cut.count_before + inner.count_before};
    const std::span ranges = likely_.ranges();
    size_t count = 0;
    for (size_t k = 0; k < ranges.size(); ++k) {
      at_cut_[count] = at_cut_[k];
      count += ranges[k] == cut.range ? 1 : 0;
    }
    at_cut_.resize(count);
  }
  std::sort(at_cut_.begin(), at_cut_.end(),
            [&](uint32_t i, uint32_t j) { return IsBefore(list_[i], list_[j]); });
  return cut;
}

void Candidates::KeepWeight(double enough, size_t count_min) {
  const auto is_enough = [&](uint64_t sum, size_t) { return static_cast<double>(sum) >= enough; };
  uint64_t sum = 0;
  for (size_t i = 0; i < std::min(list_.size(), std::max(kSortedFirst, sorted_)); ++i) {
    Sort(i + 1);
    sum += list_[i].weight;
    if (is_enough(sum, i + 1)) return Truncate(std::max(i + 1, count_min));
  }
  if (sorted_ == list_.size()) return;
  const RangeSums::Cut cut = FindCut(is_enough);
  size_t of_cut = 0;
  sum = cut.sum_before;
  while (of_cut < at_cut_.size() && !is_enough(sum, of_cut)) sum += list_[at_cut_[of_cut++]].weight;
  if (cut.count_before + of_cut < count_min) return Truncate(count_min);
  if (of_cut == 0) return;  // all together are not enough
  const TokenCandidate last = list_[at_cut_[of_cut - 1]];
  KeepIf([&](size_t i) { return !IsBefore(last, list_[i]); });
}

void Candidates::KeepAbove(double least, size_t count_min) {
  const auto is_above = [&](size_t i) { return static_cast<double>(list_[i].logit) >= least; };
  size_t count = 0;
  while (count < std::min(list_.size(), std::max(kSortedFirst, sorted_))) {
    Sort(count + 1);
    if (!is_above(count)) return Truncate(std::max(count, count_min));
    ++count;
  }
  for (; count < list_.size() && count < count_min; ++count) Sort(count + 1);
  KeepIf([&](size_t i) { return i < count || is_above(i); });
}

void Candidates::Replace(std::vector<TokenCandidate>& kept) {
  std::swap(list_, kept);
  sorted_ = 0;
  have_weights_ = false;
}

void Candidates::SetLogits(const std::function<float(const TokenCandidate&)>& change) {
  for (TokenCandidate& candidate : list_) candidate.logit = Sanitize(change(candidate));
  temperature_ = 1;
  sorted_ = 0;
  have_weights_ = false;
}

size_t Candidates::Draw(Xoshiro256& random) {
  ComputeWeights();
  const uint64_t target = random.Below(weight_total_);
  uint64_t sum = 0;
  for (size_t i = 0; i < std::min(list_.size(), std::max(kSortedFirst, sorted_)); ++i) {
    Sort(i + 1);
    sum += list_[i].weight;
    if (sum > target) return i;
  }
  const RangeSums::Cut cut = FindCut([&](uint64_t total, size_t) { return total > target; });
  sum = cut.sum_before;
  size_t of_cut = 0;
  while (of_cut + 1 < at_cut_.size()) {
    sum += list_[at_cut_[of_cut]].weight;
    if (sum > target) break;
    ++of_cut;
  }
  return at_cut_[of_cut];
}

}  // namespace kvant
