// The settings of samplers and of texts as JSON, by the names that requests have for them.
//
// Thread-safety: pure.
#pragma once

#include "kvant/sampler.h"
#include "kvant/tokenizer.h"
#include "tools/options/json.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {

Json SamplingJson(const SamplingOptions& options);

// The names of the samplers that these options chain, in order.
Json SamplerNamesJson(const SamplingOptions& options);

// The settings of a text, without its seed.
Json SettingsJson(const TextFields& fields, const Tokenizer& tokenizer);

}  // namespace kvant::tools
