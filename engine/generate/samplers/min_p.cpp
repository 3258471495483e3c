// Min-p (Nguyen et al., "Turning up the heat", 2024): keeps the tokens of at least p times the
// likeliest one's probability.
#include <algorithm>

#include "engine/generate/portable_math.h"
#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

class MinPStage final : public CopiedStage<MinPStage> {
 public:
  explicit MinPStage(const SamplingOptions& options)
      : log_p_(PortableLog(static_cast<double>(options.min_p))),
        keep_min_(static_cast<size_t>(std::max(options.min_keep, 1))) {}

  void Apply(Candidates& candidates, Xoshiro256&) override {
    candidates.Sort(1);
    // p_i >= min_p * p_max, said of logits.
    const double least =
        static_cast<double>(candidates[0].logit) + log_p_ * candidates.temperature();
    candidates.KeepAbove(least, keep_min_);
  }

 private:
  double log_p_;
  size_t keep_min_;
};

constexpr SamplerSetting kMinPSettings[] = {
    {"min-p", "--min-p", "min_p", KVANT_SAMPLER_NUMBER(min_p), 0, 1, "0 to 1",
     "Keep the tokens of at least this share of the likeliest one's probability; 0 is all"},
};

Result<std::unique_ptr<SamplerStage>> MakeMinP(const SamplerSetup& setup) {
  std::unique_ptr<SamplerStage> stage;
  if (setup.options.min_p > 0) stage = std::make_unique<MinPStage>(setup.options);
  return stage;
}

}  // namespace

const SamplerRow kMinPSampler = {
    .name = "min_p",
    .aliases = "min-p",
    .letter = 'm',
    .kind = SamplerRow::Kind::kFilter,
    .order = SamplerRow::Order::kDefault,
    .settings = kMinPSettings,
    .make = MakeMinP,
};

}  // namespace kvant
