// The caller's stages, LogitOptions::stages.
#include "base/result.h"
#include "engine/generate/logit_stages/stage_row.h"

namespace kvant {
namespace {

Status AddCallersStages(const LogitStageSources& sources, LogitStages& stages) {
  if (sources.logits == nullptr) return {};
  const LogitStageSetup setup = {static_cast<int32_t>(sources.vocab), sources.tokenizer};
  for (const LogitStageMaker& make : sources.logits->stages) {
    KVANT_ASSIGN(auto stage, make(setup));
    if (stage != nullptr) stages.push_back(std::move(stage));
  }
  return {};
}

}  // namespace

const LogitStageRow kAddedLogitStages = {LogitStageRow::Owner::kRequest,
                                         LogitStageRow::Code::kCallers, AddCallersStages};

}  // namespace kvant
