// Reads models each of whose layers is one sublayer: an attention without rotation, Mamba 2, or a
// feed-forward of squared ReLUs without gates, with experts or without.
#pragma once

#include "base/result.h"
#include "engine/arch/decoder.h"
#include "engine/arch/metadata.h"
#include "engine/arch/spec.h"

namespace kvant::arch {

// Reads such a model. A layer has attention where attention.head_count_kv is not 0, a feed-forward
// where feed_forward_length is not 0; kCorrupt where neither is 0.
Result<ModelSpec> ReadSingleMixers(const Metadata& metadata, MayHaveExperts may_have_experts);

}  // namespace kvant::arch
