// The synthetic shapes that are encoder-decoders: their tensors and what their families read.
#pragma once

#include "tools/bench/synthetic_shapes.h"

namespace kvant::tools {

// Of shapes that have an encoder.
std::vector<SyntheticTensor> PairTensors(const SyntheticShape& shape);
void AddPairShape(const SyntheticShape& shape, formats::GgufWriter& writer);

}  // namespace kvant::tools
