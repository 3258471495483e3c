// The settings of samplers as JSON, by the names that requests have for them.
//
// Thread-safety: pure.
#pragma once

#include "kvant/sampler.h"
#include "tools/options/json.h"

namespace kvant::tools {

Json SamplingJson(const SamplingOptions& options);

// The names of the samplers that these options chain, in order.
Json SamplerNamesJson(const SamplingOptions& options);

}  // namespace kvant::tools
