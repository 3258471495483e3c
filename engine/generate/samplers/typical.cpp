// Locally typical sampling (Meister et al., 2022): keeps the tokens whose surprise, -log p, is
// nearest to the entropy until their probabilities together exceed p.
//
// Where the temperature is 0, this sampler is passed over, although it may remove the likeliest
// token.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "engine/generate/portable_math.h"
#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

class TypicalStage final : public CopiedStage<TypicalStage> {
 public:
  explicit TypicalStage(const SamplingOptions& options)
      : p_(static_cast<double>(options.typical)),
        keep_min_(static_cast<size_t>(std::max(options.min_keep, 1))) {}

  void Apply(Candidates& candidates, Xoshiro256&) override {
    candidates.SortIfBegun();
    candidates.ComputeWeights();
    const double total = static_cast<double>(candidates.weight_total());
    FindDistances(candidates, total);
    const double enough = total * p_;
    uint64_t sum = 0;
    kept_.clear();
    for (const Surprise& entry : surprises_) {
      kept_.push_back(candidates[entry.index]);
      sum += kept_.back().weight;
      if (static_cast<double>(sum) > enough && kept_.size() >= keep_min_) break;
    }
    candidates.Replace(kept_);
  }

 private:
  struct Surprise {
    double distance;
    size_t index;
  };

  // How far each token's surprise is from the entropy, the nearest first.
  void FindDistances(const Candidates& candidates, double total) {
    const double log_total = PortableLog(total);
    surprises_.clear();
    double entropy = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const double weight = static_cast<double>(candidates[i].weight);
      if (weight == 0) continue;  // p log p is 0 there, and such a token is never typical
      const double surprise = log_total - PortableLog(weight);
      entropy += weight / total * surprise;
      surprises_.push_back({surprise, i});
    }
    for (Surprise& entry : surprises_) entry.distance = std::fabs(entry.distance - entropy);
    std::sort(surprises_.begin(), surprises_.end(), [&](const Surprise& a, const Surprise& b) {
      return std::tuple(a.distance, candidates[a.index].id) <
             std::tuple(b.distance, candidates[b.index].id);
    });
  }

  double p_;
  size_t keep_min_;
  std::vector<Surprise> surprises_;
  std::vector<TokenCandidate> kept_;
};

constexpr SamplerSetting kTypicalSettings[] = {
    {"typical", "--typical,--typical-p", "", &SamplingOptions::typical, 0, 1, "0 to 1",
     "Keep the most typical tokens that have this probability together; 1 is all"},
};

Result<std::unique_ptr<SamplerStage>> MakeTypical(const SamplerSetup& setup) {
  std::unique_ptr<SamplerStage> stage;
  if (setup.options.typical < 1) stage = std::make_unique<TypicalStage>(setup.options);
  return stage;
}

}  // namespace

const SamplerRow kTypicalSampler = {
    .name = "typ_p",
    .aliases = "typ-p typical typical-p typical_p typ",
    .letter = 'y',
    .kind = SamplerRow::Kind::kFilter,
    .order = SamplerRow::Order::kDefault,
    .settings = kTypicalSettings,
    .make = MakeTypical,
};

}  // namespace kvant
