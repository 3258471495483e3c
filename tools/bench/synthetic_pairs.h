// The synthetic shapes that are encoder-decoders: their tensors and what their families read.
#pragma once

#include "tools/bench/synthetic_shapes.h"

namespace kvant::tools {

// The tensors of a shape that has an encoder, and its metadata.
std::vector<SyntheticTensor> PairTensors(const SyntheticShape& shape);
void AddPairShape(const SyntheticShape& shape, formats::GgufWriter& writer);

}  // namespace kvant::tools
