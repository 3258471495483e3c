// Top-k (Fan et al., "Hierarchical neural story generation", 2018): keeps the k likeliest tokens.
#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

class TopKStage final : public CopiedStage<TopKStage> {
 public:
  explicit TopKStage(size_t k) : k_(k) {}

  void Apply(Candidates& candidates, Xoshiro256&) override { candidates.KeepLikeliest(k_); }

 private:
  size_t k_;
};

constexpr SamplerSetting kTopKSettings[] = {
    {"top-k", "--top-k", "top_k", KVANT_SAMPLER_NUMBER(top_k), -kSamplerIntMax - 1, kSamplerIntMax,
     "a whole number", "Keep the N likeliest tokens; 0 is all"},
};

Result<std::unique_ptr<SamplerStage>> MakeTopK(const SamplerSetup& setup) {
  std::unique_ptr<SamplerStage> stage;
  const int32_t k = setup.options.top_k;
  if (k > 0) stage = std::make_unique<TopKStage>(static_cast<size_t>(k));
  return stage;
}

}  // namespace

const SamplerRow kTopKSampler = {
    .name = "top_k",
    .aliases = "top-k",
    .letter = 'k',
    .kind = SamplerRow::Kind::kLogits,
    .order = SamplerRow::Order::kDefault,
    .settings = kTopKSettings,
    .make = MakeTopK,
    .filters_logits = true,
};

}  // namespace kvant
