// The caller's function, LogitOptions::on_logits.
#include "engine/generate/logit_stages/stage_row.h"

namespace kvant {
namespace {

class FunctionStage final : public CopiedLogitStage<FunctionStage> {
 public:
  explicit FunctionStage(const LogitOptions& options) : on_logits_(options.on_logits) {}

  Status Apply(const LogitText& text, std::span<float> row) override {
    return on_logits_(text.tokens, row);
  }
  bool reads_tokens() const override { return true; }
  bool ends_text() const override { return true; }
  bool keeps_state() const override { return false; }

 private:
  std::function<Status(std::span<const TokenId> text, std::span<float> logits)> on_logits_;
};

Status AddFunction(const LogitStageSources& sources, LogitStages& stages) {
  if (sources.logits == nullptr || !sources.logits->on_logits) return {};
  stages.push_back(std::make_unique<FunctionStage>(*sources.logits));
  return {};
}

}  // namespace

const LogitStageRow kFunctionLogitStage = {LogitStageRow::Owner::kRequest,
                                           LogitStageRow::Code::kCallers, AddFunction};

}  // namespace kvant
