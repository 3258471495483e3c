// The log-probability of every token of a given text, with the likeliest alternatives: what
// evaluation harnesses and people who debug prompts ask for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/evaluate/distribution.h"
#include "kvant/session.h"

namespace kvant::evaluate {

struct TokenScore {
  double log_prob = 0;            // of the token, given all before it, in nats
  int32_t rank = 0;               // 1 = the likeliest
  std::vector<TokenLogProb> top;  // the likeliest tokens at its place
};

// Appends all but the last of the tokens to the session, and scores tokens 1, 2 ... of them:
// nothing here predicts the first, so there is one result less than there are tokens. kContextFull
// if they do not fit, kCorrupt if a logit is not a number.
Result<std::vector<TokenScore>> ScoreTokens(Session& session, std::span<const TokenId> tokens,
                                            size_t top_count);

}  // namespace kvant::evaluate
