// How a text of kvant run ended: a line of JSON, or a summary for people.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvant/generator.h"
#include "kvant/token_id.h"

namespace kvant::tools {

std::string TextJson(const std::string& model, const std::vector<TokenId>& prompt,
                     std::span<const TokenId> source, const Generation& generation, uint64_t seed,
                     double load_seconds);

// Writes the summary to stderr: speeds, memory of the KV cache, and what ended the text.
void PrintSummary(const Generation& generation, uint64_t kv_bytes, uint64_t kv_bytes_planned);

enum class GrammarUse : uint8_t { kNone, kFollowed };
// Why a text ended where it need not have; "" where it should.
std::string EarlyEnd(FinishReason reason, int64_t context, GrammarUse grammar);

}  // namespace kvant::tools
