// The node that makes one row of the rows of each text.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/graph/plan.h"
#include "kvant/pooling.h"

namespace kvant::graph {

// out = the mean, the first or the last of the rows that the texts PassContext::head have in `in`,
// `cols` columns. Pooling is kMean, kCls or kLast. A mean is summed in double precision, from the
// first row to the last.
std::unique_ptr<Node> MakePool(Pooling pooling, ValueId in, ValueId out, int64_t cols);

}  // namespace kvant::graph
