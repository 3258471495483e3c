// Top-p, or nucleus sampling (Holtzman et al., "The curious case of neural text degeneration",
// 2019): keeps the fewest tokens, the likeliest first, whose probabilities together reach p.
#include <algorithm>

#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

class TopPStage final : public CopiedStage<TopPStage> {
 public:
  explicit TopPStage(const SamplingOptions& options)
      : p_(static_cast<double>(options.top_p)),
        keep_min_(static_cast<size_t>(std::max(options.min_keep, 1))) {}

  void Apply(Candidates& candidates, Xoshiro256&) override {
    candidates.ComputeWeights();
    candidates.KeepWeight(static_cast<double>(candidates.weight_total()) * p_, keep_min_);
  }

 private:
  double p_;
  size_t keep_min_;
};

constexpr SamplerSetting kTopPSettings[] = {
    {"top-p", "--top-p", "top_p", KVANT_SAMPLER_NUMBER(top_p), 0, 1, "0 to 1",
     "Keep the likeliest tokens that have this probability together; 1 is all"},
};

Result<std::unique_ptr<SamplerStage>> MakeTopP(const SamplerSetup& setup) {
  std::unique_ptr<SamplerStage> stage;
  if (setup.options.top_p < 1) stage = std::make_unique<TopPStage>(setup.options);
  return stage;
}

}  // namespace

const SamplerRow kTopPSampler = {
    .name = "top_p",
    .aliases = "top-p nucleus",
    .letter = 'p',
    .kind = SamplerRow::Kind::kFilter,
    .order = SamplerRow::Order::kDefault,
    .settings = kTopPSettings,
    .make = MakeTopP,
};

}  // namespace kvant
