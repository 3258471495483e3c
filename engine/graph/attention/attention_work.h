// The work of an attention, and its line in the list of a plan. Thread-safety: pure.
#pragma once

#include <string>

#include "engine/graph/attention/attention_parts.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/work.h"

namespace kvant::graph {

// Adds the operations of a pass, and the bytes that it reads from the cache.
void AddAttentionWork(const AttentionShape& shape, const PassShape& pass, Work& work);

std::string DescribeAttention(const AttentionParts& parts);

}  // namespace kvant::graph
