// The probability distribution behind one row of logits, and what is measured on it.
//
// Exponentials are computed in float to 2 ulp and summed in double in a fixed order, with
// operations that IEEE 754 defines exactly: the same logits give the same bits on every machine.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kvant/tokenizer.h"

namespace kvant::evaluate {

// A row of logits (or of log-probabilities) with what normalizes it.
struct Distribution {
  std::span<const float> logits;  // [vocab]
  double log_sum = 0;             // ln(sum(e^logit)); NaN if a logit is NaN
  TokenId top = 0;                // the first of the largest logits

  double LogProb(TokenId id) const { return logits[static_cast<size_t>(id)] - log_sum; }
};

// The row must not be empty.
Distribution Normalize(std::span<const float> logits);

// KL(base || other) = sum(p_base * (ln p_base - ln p_other)) in nats, over the tokens whose ln
// p_base is above `floor`. Tokens that base gives no probability count nothing.
double KlDivergence(const Distribution& base, const Distribution& other,
                    double floor = -std::numeric_limits<double>::infinity());

struct TokenLogProb {
  TokenId id = 0;
  double log_prob = 0;
};

// The `count` likeliest tokens, the likeliest first, lower ids first among equals.
std::vector<TokenLogProb> TopTokens(const Distribution& distribution, size_t count);

// How many tokens are likelier, plus 1; equal ones with a lower id count as likelier.
int32_t Rank(const Distribution& distribution, TokenId id);

}  // namespace kvant::evaluate
