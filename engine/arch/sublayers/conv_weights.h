// A part that recurrent sublayers share: the weights of a convolution over the last rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/arch/metadata.h"
#include "engine/graph/builder.h"
#include "engine/graph/recurrent/recurrent_nodes.h"

namespace kvant::arch {

// How many rows a convolution sees: a number from 2 on, as one that sees a single row keeps
// nothing.
Result<int64_t> ReadConvTaps(const Metadata& metadata, std::string_view key);

// The weights `name`.weight, [taps x cols] or [taps x 1 x cols], and `name`.bias, [cols], if there
// is one.
Result<graph::CausalConv> ReadConvWeights(const graph::PlanBuilder& plan, const std::string& name,
                                          int64_t taps, int64_t cols);

}  // namespace kvant::arch
