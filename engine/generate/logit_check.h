// Whether a row of a model's logits are numbers. A NaN comes from weights that are damaged or too
// large, and whatever is chosen from its row means nothing.
//
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kvant/result.h"
#include "kvant/token_id.h"

namespace kvant {

// Where a row comes from, for messages.
struct LogitOrigin {
  std::string_view host;  // SequenceHost::name
  int64_t position = 0;   // in its sequence, of the token that the row follows
  TokenId token = 0;      // that token
};

// kCorrupt where a logit is NaN.
Status CheckLogitsAreNumbers(std::span<const float> logits, const LogitOrigin& origin);

}  // namespace kvant
