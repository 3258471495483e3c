// Log-probabilities of given tokens for many texts at once, as evaluation harnesses ask for them.
//
// Beginnings that texts share are computed once, and the rests of short texts share passes. Every
// text gets the scores that it would get alone, as far as kSharedRowsMax rows share one arithmetic:
// only scores computed in longer pieces depend on where a common beginning ends.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "kvant/runner.h"

namespace kvant::evaluate {

struct ScoredText {
  std::span<const TokenId> tokens;
  size_t first = 1;                      // tokens[first] and those after it are scored
  std::span<double> log_probs = {};      // [tokens - first], or empty
  std::span<TokenId> likeliest = {};     // [tokens - first], the likeliest in each place, or empty
  std::span<const TokenId> source = {};  // what an encoder reads before; empty: nothing
};

// kInvalid names the text whose `first` has no token before it or behind it, or which has ids of
// rows where tokens are scored; kContextFull one that does not fit, kCorrupt one for which a logit
// is not a number. The runner needs room for one sequence more, and uses what other room it has;
// its sequences are as they were.
Status ScoreTexts(Runner& runner, std::span<const ScoredText> texts);

}  // namespace kvant::evaluate
