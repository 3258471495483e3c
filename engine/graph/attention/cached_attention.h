// Attention over the cache, cut into tasks and slices for the team.
#pragma once

#include <cstddef>

#include "base/thread_pool.h"
#include "engine/graph/attention/attention_parts.h"

namespace kvant::graph {

// Computes the tasks and slices of a team's member.
void AttendCached(const AttentionParts& parts, const PassContext& pass,
                  const ThreadPool::Member& member);

// Scratch bytes of a thread, and bytes that the team shares for the partial results of slices.
size_t CachedScratchBytes(const AttentionParts& parts, const PassLimits& limits);
size_t CachedSharedBytes(const AttentionParts& parts, const PassLimits& limits);

}  // namespace kvant::graph
