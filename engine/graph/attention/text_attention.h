// Attention inside the texts of a pass, without a cache: every row attends to rows of its own text,
// to all of them or to those that the mask shows.
//
// Keys and values of a text and a head are laid out in a thread's scratch memory as the cache lays
// them out, in 32-bit floats, and the kernels of the cache attend to them. So a row has the bits
// that it has alone, whatever texts a pass has and however it is cut.
#pragma once

#include <cstddef>

#include "base/thread_pool.h"
#include "engine/graph/attention/attention_parts.h"

namespace kvant::graph {

// Computes the shares of a team's member in a pass over texts.
void AttendTexts(const AttentionParts& parts, const PassContext& pass,
                 const ThreadPool::Member& member);

// Scratch bytes of a thread, for texts of at most limits.context rows.
size_t TextScratchBytes(const AttentionParts& parts, const PassLimits& limits);

}  // namespace kvant::graph
