// XTC, "exclude top choices": by chance, drops all but the least likely of the tokens whose
// probability reaches a threshold. Source: the proposal of p-e-w (text-generation-webui, 2024).
#include <algorithm>

#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

// Above this threshold at most one token can reach it.
constexpr float kXtcThresholdMax = 0.5f;

class XtcStage final : public CopiedStage<XtcStage> {
 public:
  explicit XtcStage(const SamplingOptions& options)
      : probability_(options.xtc_probability),
        threshold_(static_cast<double>(options.xtc_threshold)),
        keep_min_(static_cast<size_t>(std::max(options.min_keep, 0))) {}

  void Apply(Candidates& candidates, Xoshiro256& random) override {
    if (candidates.size() < 2) return;
    const float chance = static_cast<float>(random.Next() >> 40) * 0x1p-24f;  // 0 <= chance < 1
    if (chance > probability_) return;
    candidates.ComputeWeights();
    candidates.Sort(1);
    const double least = threshold_ * static_cast<double>(candidates.weight_total());
    size_t reached = 0;
    size_t last = 0;  // of the candidates that reach the threshold, in the order
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (static_cast<double>(candidates[i].weight) < least) continue;
      if (reached == 0 || Candidates::IsBefore(candidates[last], candidates[i])) last = i;
      ++reached;
    }
    if (reached < 2 || candidates.size() - (reached - 1) < keep_min_) return;
    const TokenCandidate first = candidates[last];
    candidates.KeepIf([&](size_t i) { return !Candidates::IsBefore(candidates[i], first); });
  }

 private:
  float probability_;
  double threshold_;
  size_t keep_min_;
};

constexpr SamplerSetting kXtcSettings[] = {
    {"xtc-probability", "--xtc-probability", "xtc_probability",
     KVANT_SAMPLER_NUMBER(xtc_probability), 0, 1, "0 to 1",
     "XTC: how often the likeliest tokens are dropped; 0 is never"},
    {"xtc-threshold", "--xtc-threshold", "xtc_threshold", KVANT_SAMPLER_NUMBER(xtc_threshold), 0, 1,
     "0 to 1",
     "XTC: of the tokens with at least this probability, only the least likely stays; above 0.5 "
     "is off"},
};

Result<std::unique_ptr<SamplerStage>> MakeXtc(const SamplerSetup& setup) {
  const SamplingOptions& options = setup.options;
  std::unique_ptr<SamplerStage> stage;
  if (options.xtc_probability > 0 && options.xtc_threshold <= kXtcThresholdMax) {
    stage = std::make_unique<XtcStage>(options);
  }
  return stage;
}

}  // namespace

const SamplerRow kXtcSampler = {
    .name = "xtc",
    .aliases = "",
    .letter = 'x',
    .kind = SamplerRow::Kind::kChoice,
    .order = SamplerRow::Order::kDefault,
    .settings = kXtcSettings,
    .make = MakeXtc,
};

}  // namespace kvant
