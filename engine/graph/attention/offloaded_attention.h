// Attention of a layer whose keys and values a device keeps.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "engine/graph/attention/attention_parts.h"

namespace kvant::graph {

// The first member drives the device; then each share rotates and quantizes its rows.
// `ticket` numbers the call: it is greater than that of each earlier call.
void AttendOnDevice(const AttentionParts& parts, uint64_t ticket, const PassContext& pass,
                    const ThreadPool::Member& member);

}  // namespace kvant::graph
