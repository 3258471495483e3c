// The processors of beam_processors.h as one stage, with the softmax before or after them: it
// leaves log-probabilities.
#include <algorithm>

#include "engine/generate/logit_stages/beam_processors.h"
#include "engine/generate/logit_stages/stage_row.h"

namespace kvant {
namespace {

class ProcessorsStage final : public CopiedLogitStage<ProcessorsStage> {
 public:
  ProcessorsStage(const BeamOptions& options, size_t vocab) : options_(options) {
    for (const BeamProcessor& processor : AllBeamProcessors()) {
      if (processor.used(options)) processors_.push_back(&processor);
    }
    if (ProcessorsStage::reads_tokens()) seen_.resize(vocab);
  }

  Status Apply(const LogitText& text, std::span<float> row) override {
    if (++call_ == 0) {
      std::fill(seen_.begin(), seen_.end(), 0);
      call_ = 1;
    }
    const bool on_logits = ProcessesLogits(options_);
    if (!on_logits) ToLogProbs(row);
    const BeamProcessing step = {options_, text, row, seen_, call_};
    for (const BeamProcessor* processor : processors_) processor->apply(step);
    if (on_logits) ToLogProbs(row);
    return {};
  }

  bool reads_tokens() const override {
    return std::any_of(processors_.begin(), processors_.end(), [](const BeamProcessor* processor) {
      return processor->reads == BeamProcessor::Reads::kTokens;
    });
  }
  bool keeps_state() const override { return false; }

 private:
  BeamOptions options_;
  std::vector<const BeamProcessor*> processors_;  // those that the options use, in order
  std::vector<uint32_t> seen_;  // [vocab] if tokens are looked at: the call that saw it last
  uint32_t call_ = 0;
};

Status AddProcessors(const LogitStageSources& sources, LogitStages& stages) {
  if (sources.processors == nullptr) return {};
  stages.push_back(std::make_unique<ProcessorsStage>(*sources.processors, sources.vocab));
  return {};
}

}  // namespace

const LogitStageRow kProcessorLogitStages = {LogitStageRow::Owner::kRequest,
                                             LogitStageRow::Code::kOwn, AddProcessors};

}  // namespace kvant
