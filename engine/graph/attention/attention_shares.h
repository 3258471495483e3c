// How attention over the cache is cut: tasks, each some rows of the pass for one kv head, and
// slices of tasks, where there are few.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/work.h"

namespace kvant::graph {

// The tiles of kv::kRowTile positions that the rows of a pass begin.
int64_t CountRowTiles(const PassShape& pass);

// The spans that hold the positions.
int64_t SpansOf(const Range& positions);

// Slices of every task, so that shares have one each; not more than a task has spans.
inline int64_t SlicesOf(int64_t tasks, int64_t spans, int64_t shares) {
  return tasks == 0 || shares < 2 * tasks ? 1 : std::min(shares / tasks, spans);
}

// Rows with logits, or few beams, whose partial results there is room for at any length.
inline constexpr int64_t kSlicedRows = 4;

// The work of each share in a pass: `all`, dealt out by the positions that the rows of its tasks
// see.
std::vector<ShareWork> AttentionShares(const AttentionShape& shape, const PassShape& pass,
                                       const Work& all, int64_t shares);

}  // namespace kvant::graph
