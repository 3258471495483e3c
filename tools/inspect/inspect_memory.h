// kvant inspect --memory: what a run will need, and what fits into a budget.
#pragma once

#include <cstdint>
#include <string>

#include "engine/run/memory_plan.h"
#include "tools/options/json.h"

namespace kvant::tools {

// The plan for `options`. With a budget of bytes above 0, also how many sequences, or how long a
// single one, fit beside weights and buffers.
Result<Json> MemoryJson(const Model& model, const SessionOptions& options, uint64_t budget);

// The result of MemoryJson as text for people.
std::string MemoryText(const Json& memory);

}  // namespace kvant::tools
