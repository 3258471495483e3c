// The tokens among which one is chosen, on their way through the chain of samplers.
//
// They begin as a row of logits, one per token of the vocabulary, and stay so while samplers only
// change logits. What removes tokens works on a list: sorted as far as somebody asked for, the
// likeliest first, and of equal ones the lower id. A logit of -infinity means removed: such tokens
// are never on the list.
//
// Probabilities are integers of 40 fractional bits, so that sums do not depend on their order.
// A temperature is not applied to the logits at once but kept beside them (Scale), and divided out
// when a probability is asked for.
//
// Thread-safety: one thread at a time per object. Nothing is allocated after the first use of a
// chain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/generate/samplers/range_sums.h"
#include "kvant/random.h"
#include "kvant/token_id.h"

namespace kvant {

struct TokenCandidate {
  float logit;
  TokenId id;
  uint64_t weight;  // probability relative to the likeliest candidate, in units of 2^-40
};

class Candidates {
 public:
  // `list_max` bounds the length that the list is likely to have: [1, vocab].
  Candidates(size_t vocab, size_t list_max);

  // Begins anew with the logits [vocab] of a row. NaN counts as -infinity, +inf as the largest
  // number.
  void Start(std::span<const float> logits);

  // ---- As a row of logits or as a list ----------------------------------------------------------

  size_t vocab() const { return row_.size(); }
  bool is_list() const { return is_list_; }

  // The logits by token, to be changed; only while !is_list() and nothing was scaled.
  std::span<float> row() { return row_; }

  // logit = change(k, logit) for each token ids[k] that is still there. No id occurs twice.
  void Change(std::span<const TokenId> ids, const std::function<float(size_t, float)>& change);

  // Divides all logits by a temperature above 0.
  void Scale(double temperature) { temperature_ *= temperature; }

  // Keeps the `count` likeliest; on the list, in order.
  void KeepLikeliest(size_t count);

  // Makes the list if there is none yet. False if no candidate is left.
  bool MakeList();

  // ---- As a list --------------------------------------------------------------------------------

  size_t size() const { return list_.size(); }
  const TokenCandidate& operator[](size_t i) const { return list_[i]; }
  double temperature() const { return temperature_; }

  // Brings at least the first `count` candidates into order; the prefix grows geometrically, so
  // that walking to a stop somewhere costs little more than finding it.
  void Sort(size_t count);
  void SortAll() { Sort(list_.size()); }

  // All, if the order of the rest behind a sorted prefix could matter: it differs between
  // standard libraries.
  void SortIfBegun() {
    if (sorted_ > 0) SortAll();
  }

  // Whether a is before b in the order.
  static bool IsBefore(const TokenCandidate& a, const TokenCandidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }

  // Sets the weights to e^((logit - best) / temperature) and their sum.
  void ComputeWeights();
  uint64_t weight_total() const { return weight_total_; }

  // Keeps the first `count` of the order; sorted only as far as they were.
  void Truncate(size_t count);

  // Keep the first of the order: as many as together weigh `enough` (> 0), or all whose logit is at
  // least `least`, and no fewer than `count_min`. KeepWeight wants weights.
  void KeepWeight(double enough, size_t count_min);
  void KeepAbove(double least, size_t count_min);

  // Keeps the candidates for which keep(i) is true. The rest stays in its order.
  template <class Keep>
  void KeepIf(const Keep& keep) {
    size_t count = 0;
    size_t sorted = 0;
    for (size_t i = 0; i < list_.size(); ++i) {
      list_[count] = list_[i];
      const size_t stays = keep(i) ? 1 : 0;
      count += stays;
      if (i < sorted_) sorted += stays;
    }
    list_.resize(count);
    sorted_ = sorted;
  }

  // The list becomes `kept`, which becomes scratch; in any order.
  void Replace(std::vector<TokenCandidate>& kept);

  // logit = change(candidate) for all; temperatures up to here do not scale the new logits.
  void SetLogits(const std::function<float(const TokenCandidate&)>& change);

  // The index of a candidate drawn by its probability. One random number is used.
  size_t Draw(Xoshiro256& random);

 private:
  void Gather(size_t count);
  void ApplyTemperature();
  float LargestLogit() const;  // on the list
  template <class Enough>
  RangeSums::Cut FindCut(const Enough& enough);

  std::vector<float> row_;  // [vocab]
  bool is_list_ = false;
  std::vector<TokenCandidate> list_;  // means nothing unless is_list_
  size_t sorted_ = 0;                 // length of the prefix that is in order
  uint64_t weight_total_ = 0;
  double temperature_ = 1;

  // The weights on the list are of this logit and temperature, if have_weights_.
  bool have_weights_ = false;
  float weights_best_ = 0;
  double weights_temperature_ = 1;

  RangeSums likely_;              // scratch of FindCut
  std::vector<uint32_t> at_cut_;  // scratch of FindCut: indices of candidates
  std::vector<int32_t> places_;   // [vocab] scratch of Change: place on the list + 1
};

}  // namespace kvant
