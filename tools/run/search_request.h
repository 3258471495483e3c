// The options of a run as the library takes them: of a search, and of the rules for one text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "engine/text/languages.h"
#include "kvant/beam_options.h"
#include "kvant/model.h"
#include "tools/run/options/run_options.h"

namespace kvant::tools {

// The options of a beam search. `translation` is empty for a model without languages.
Result<BeamOptions> ToBeamOptions(const RunOptions& options, const Model& model,
                                  const Translation& translation);

// The processors that force and ban tokens in a text that begins with `first` tokens. max_tokens
// becomes the most tokens that follow; -1: as many as there is room for.
Result<BeamOptions> Processors(const RunOptions& options, const Model& model, size_t first,
                               int64_t* max_tokens);

}  // namespace kvant::tools
