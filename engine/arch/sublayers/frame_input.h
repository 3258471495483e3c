// Rows of an encoder's stream that are made from frames of features (of sound) instead of tokens,
// as in Whisper (arXiv 2212.04356):
//   x[f] = GELU(matrix 0 . [frames f - 1, f, f + 1] + bias), for each frame f
//   stream[p] = GELU(matrix 1 . [x[2p - 1], x[2p], x[2p + 1]] + bias), for each position p
// where what lies before the first frame and behind the last is 0, and GELU is the exact one.
//
// Tensors: enc.conv1d.0 [3 * bins x dim] and enc.conv1d.1 [3 * dim x dim], with an optional bias
// each. Columns 3 c, 3 c + 1 and 3 c + 2 multiply value c of three neighbours.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/graph/builder.h"

namespace kvant::arch {

struct FrameInput {
  int64_t bins = 0;  // values of a frame

  // The stream, [positions][dim].
  Result<graph::ValueId> AddNodes(int64_t dim, graph::PlanBuilder& builder) const;
};

}  // namespace kvant::arch
