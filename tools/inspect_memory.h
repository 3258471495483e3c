// kvant inspect --memory: what a run will need, and what fits into a budget.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/memory_plan.h"

namespace kvant::tools {

// The plan for these options. With a budget, a size such as "24GiB": also how many sequences, and
// how long a one, fit beside weights and buffers. kInvalid for a text that is no size.
Result<nlohmann::ordered_json> MemoryJson(const Model& model, const SessionOptions& options,
                                          const std::optional<std::string>& budget);

// The same for people, from what MemoryJson gave.
std::string MemoryText(const nlohmann::ordered_json& memory);

}  // namespace kvant::tools
