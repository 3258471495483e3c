// The grammar that a text follows, LogitOptions::grammar.
#include "kvant/grammar.h"

#include "base/result.h"
#include "engine/generate/logit_stages/stage_row.h"

namespace kvant {
namespace {

Status AddGrammar(const LogitStageSources& sources, LogitStages& stages) {
  if (sources.logits == nullptr || sources.logits->grammar == nullptr) return {};
  KVANT_ASSIGN(auto stage, sources.logits->grammar->NewStage(static_cast<int32_t>(sources.vocab),
                                                             sources.logits->thoughts));
  stages.push_back(std::move(stage));
  return {};
}

}  // namespace

const LogitStageRow kGrammarLogitStage = {LogitStageRow::Owner::kRequest, LogitStageRow::Code::kOwn,
                                          AddGrammar};

}  // namespace kvant
