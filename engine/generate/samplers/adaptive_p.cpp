// Adaptive-p: draws tokens whose probability is near a target, and moves the target so that the
// probabilities of the tokens drawn average to the one asked for.
//     target' = clamp(2 target - sum / weight, 0, 1)
//     logit   = 5 - 10 d^2 / (1 + d),   d = |p - target'| / 0.3
// `sum` and `weight` are of the probabilities of the tokens drawn so far, each step weighing
// `decay` times the one after it; they begin as if all before had met the target.
// Source: the sampler of MrJackSpade and ddh0 in llama.cpp (2026).
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

constexpr double kAdaptivePeak = 5;
constexpr double kAdaptiveSharpness = 10;
constexpr double kAdaptiveWidth = 0.3;
constexpr double kAdaptiveDecayMax = 0.99;

class AdaptivePStage final : public CopiedStage<AdaptivePStage, DrawingStage> {
 public:
  explicit AdaptivePStage(const SamplingOptions& options)
      : target_(std::min(static_cast<double>(options.adaptive_target), 1.0)),
        decay_(std::min(static_cast<double>(options.adaptive_decay), kAdaptiveDecayMax)),
        sum_(target_ / (1 - decay_)),
        weight_(1 / (1 - decay_)) {}

  size_t Draw(Candidates& candidates, Xoshiro256& random) override {
    candidates.ComputeWeights();
    const double total = static_cast<double>(candidates.weight_total());
    const double target = std::clamp(2 * target_ - sum_ / weight_, 0.0, 1.0);
    candidates.SetLogits([&](const TokenCandidate& candidate) {
      const double p = static_cast<double>(candidate.weight) / total;
      const double d = std::fabs(p - target) / kAdaptiveWidth;
      return static_cast<float>(kAdaptivePeak - kAdaptiveSharpness * d * d / (1 + d));
    });
    probabilities_.clear();
    for (size_t i = 0; i < candidates.size(); ++i) {
      probabilities_.push_back(
          {candidates[i].id, static_cast<double>(candidates[i].weight) / total});
    }
    const size_t chosen = candidates.Draw(random);
    drawn_ = candidates[chosen].id;
    return chosen;
  }

  // Only a token that was drawn moves the target.
  void Accept(TokenId token, TokenFrom /*from*/) override {
    if (token != drawn_) return;
    drawn_ = -1;
    const auto found = std::find_if(probabilities_.begin(), probabilities_.end(),
                                    [&](const Chance& chance) { return chance.id == token; });
    sum_ = decay_ * sum_ + found->probability;
    weight_ = decay_ * weight_ + 1;
  }

 private:
  struct Chance {
    TokenId id;
    double probability;
  };
  double target_;
  double decay_;
  double sum_;
  double weight_;
  TokenId drawn_ = -1;
  std::vector<Chance> probabilities_;  // of the last draw, before the logits were replaced
};

constexpr SamplerSetting kAdaptivePSettings[] = {
    {"adaptive-target", "--adaptive-target", "", KVANT_SAMPLER_NUMBER(adaptive_target), -1, 1,
     "-1 to 1",
     "Adaptive-p, where --samplers names adaptive_p: prefer tokens of this probability; below 0 is "
     "off"},
    {"adaptive-decay", "--adaptive-decay", "", KVANT_SAMPLER_NUMBER(adaptive_decay), 0,
     kAdaptiveDecayMax, "0 to 0.99",
     "Adaptive-p: the weight of a token's probability, relative to that of the token after it"},
};

Result<std::unique_ptr<SamplerStage>> MakeAdaptiveP(const SamplerSetup& setup) {
  std::unique_ptr<SamplerStage> stage;
  if (setup.options.adaptive_target >= 0) stage = std::make_unique<AdaptivePStage>(setup.options);
  return stage;
}

}  // namespace

const SamplerRow kAdaptivePSampler = {
    .name = "adaptive_p",
    .aliases = "adaptive-p",
    .letter = 'a',
    .kind = SamplerRow::Kind::kDraw,
    .order = SamplerRow::Order::kIfNamed,
    .settings = kAdaptivePSettings,
    .make = MakeAdaptiveP,
    .asked = [](const SamplingOptions& options) { return options.adaptive_target >= 0; },
};

}  // namespace kvant
