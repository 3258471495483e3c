// Sequences, logits and statistics of `kvant seq` as JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kvant/runner.h"
#include "kvant/tokenizer.h"
#include "tools/options/json.h"

namespace kvant::tools {

// The state of a sequence after an operation; without logits where `logits` is empty.
Json StateJson(const std::string& name, int64_t length, std::span<const float> logits);

// The `wanted` tokens of the greatest logits, the greatest first; of equal ones the lower id first.
Json TopLogitsJson(std::span<const float> logits, int64_t wanted, const Tokenizer& tokenizer);

Json StatsJson(const RunnerStats& stats);

}  // namespace kvant::tools
