// A beam's logits as the log-probabilities that a search adds up: softmax, penalties, bans and the
// filters of sampling, in the order of include/kvant/beam_options.h.
//
// NaN counts as -infinity, +infinity as the largest number; a token at -infinity cannot be chosen.
// The same logits and history give the same bits on every machine. Nothing is allocated after
// creation. Thread-safety: one thread at a time per object.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvant/beam_options.h"

namespace kvant {

class BeamLogProbs {
 public:
  // For options that CheckBeamOptions has passed.
  BeamLogProbs(const BeamOptions& options, int32_t vocab_size);

  // Whether Compute looks at `history` at all.
  bool needs_history() const;

  // Log-probabilities, [vocab], of what follows `history` (the prompt, then the beam's `generated`
  // tokens), valid until the next call. The penalties of diversity are not in it. The caller may
  // change the row.
  std::span<float> Compute(std::span<const float> logits, std::span<const TokenId> history,
                           int64_t generated);

  // Applies temperature, top-k and top-p to a row that Compute returned. Tokens that are filtered
  // out become -infinity.
  void Filter(std::span<float> row);

 private:
  struct Entry {
    float log_prob;
    TokenId id;
  };

  void ApplyBans(std::span<const TokenId> history, int64_t generated);
  void PenalizeRepetition(std::span<const TokenId> history);
  void BanRepeatedNgrams(std::span<const TokenId> history);
  void Normalize();
  void TakeTopK(size_t count);
  void TakeTopP();

  BeamOptions options_;
  size_t keep_min_;             // tokens that filters leave at least
  std::vector<float> row_;      // [vocab]
  std::vector<uint32_t> seen_;  // [vocab] if repetition is penalized: the call that saw it last
  uint32_t call_ = 0;
  std::vector<Entry> entries_;  // scratch of Filter, up to [vocab]
};

}  // namespace kvant
