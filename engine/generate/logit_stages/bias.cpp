// Logit biases and forbidden tokens, whose bias is -infinity. A sampler has one stage of them.
#include "engine/generate/logit_stages/stage_row.h"
#include "engine/generate/portable_math.h"

namespace kvant {
namespace {

class BiasStage final : public CopiedLogitStage<BiasStage> {
 public:
  void Add(std::span<const LogitBias> biases) {
    biases_.insert(biases_.end(), biases.begin(), biases.end());
  }

  Status Apply(const LogitText& /*text*/, std::span<float> row) override {
    for (const LogitBias& entry : biases_) {
      float& logit = row[static_cast<size_t>(entry.token)];
      logit = Sanitize(logit + entry.bias);
    }
    return {};
  }
  bool keeps_state() const override { return false; }

 private:
  std::vector<LogitBias> biases_;
};

Status AddBiases(const LogitStageSources& sources, LogitStages& stages) {
  if (sources.biases.empty()) return {};
  if (stages.empty()) stages.push_back(std::make_unique<BiasStage>());
  static_cast<BiasStage&>(*stages.front()).Add(sources.biases);
  return {};
}

}  // namespace

const LogitStageRow kBiasLogitStage = {LogitStageRow::Owner::kSampler, LogitStageRow::Code::kOwn,
                                       AddBiases};

}  // namespace kvant
