// The ways of `kvant run`: one streamed text, an answer with calls of tools, a beam search, and
// batches of texts and searches.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "base/result.h"
#include "kvant/generator.h"
#include "kvant/model.h"
#include "tools/options/groups/model_group.h"
#include "tools/run/options/run_options.h"
#include "tools/run/prompt_lines.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

// The model of a run, which is opened once, and when its loading began.
struct RunModel {
  std::shared_ptr<const Model> model;
  std::chrono::steady_clock::time_point start;
};

// Each is the whole of the command after the model was opened; `finish_reason` tells whether it was
// interrupted. Batches fail where a line could not be answered, after all others were.
Status RunText(const RunOptions& options, const Positionals& positionals, const RunModel& opened,
               ResultStream& out, FinishReason* finish_reason);
Status RunTools(const RunOptions& options, const Positionals& positionals, const RunModel& opened,
                ResultStream& out, FinishReason* finish_reason);
Status RunBeams(const RunOptions& options, const Positionals& positionals, const RunModel& opened,
                ResultStream& out, FinishReason* finish_reason);
Status RunBeamBatch(const RunOptions& options, const RunModel& opened,
                    std::vector<PromptLine> prompts, ResultStream& out,
                    FinishReason* finish_reason);
Status RunBatch(const RunOptions& options, const RunModel& opened, std::vector<PromptLine> prompts,
                ResultStream& out, FinishReason* finish_reason);

}  // namespace kvant::tools
