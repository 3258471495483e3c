// Temperature, fixed or dynamic. A fixed one divides the logits; 0 or less keeps the likeliest of
// the candidates only. A dynamic one lies within `range` of it, higher the less sure the model is:
//     low + (high - low) * (H / ln n)^exponent,   H: the entropy of the n candidates.
// Source of the dynamic one: kalomaze's entropy sampling (2023), as llama.cpp has it.
#include <algorithm>

#include "engine/generate/portable_math.h"
#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

class TemperatureStage final : public CopiedStage<TemperatureStage> {
 public:
  explicit TemperatureStage(double temperature) : temperature_(temperature) {}

  void Apply(Candidates& candidates, Xoshiro256&) override {
    if (temperature_ <= 0) {
      candidates.KeepLikeliest(1);
    } else {
      candidates.Scale(temperature_);
    }
  }

  bool keeps_likeliest_only() const override { return temperature_ <= 0; }

 private:
  double temperature_;
};

class DynamicTemperatureStage final : public CopiedStage<DynamicTemperatureStage> {
 public:
  explicit DynamicTemperatureStage(const SamplingOptions& options)
      : low_(std::max(0.0, static_cast<double>(options.temperature) -
                               static_cast<double>(options.dynatemp_range))),
        high_(static_cast<double>(options.temperature) +
              static_cast<double>(options.dynatemp_range)),
        exponent_(static_cast<double>(options.dynatemp_exponent)) {}

  void Apply(Candidates& candidates, Xoshiro256&) override {
    if (!candidates.MakeList() || candidates.size() < 2) return;
    const double share = Entropy(candidates) / PortableLog(static_cast<double>(candidates.size()));
    const double temperature = low_ + (high_ - low_) * PortablePower(share, exponent_);
    if (temperature <= 0) {
      candidates.KeepLikeliest(1);
    } else {
      candidates.Scale(temperature);
    }
  }

 private:
  static double Entropy(Candidates& candidates) {
    candidates.SortIfBegun();
    candidates.ComputeWeights();
    const double total = static_cast<double>(candidates.weight_total());
    const double log_total = PortableLog(total);
    double entropy = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const double weight = static_cast<double>(candidates[i].weight);
      if (weight > 0) entropy += weight / total * (log_total - PortableLog(weight));
    }
    return entropy;
  }

  double low_;
  double high_;
  double exponent_;
};

constexpr SamplerSetting kTemperatureSettings[] = {
    {"temperature", "--temp,--temperature", "temp", KVANT_SAMPLER_NUMBER(temperature),
     -kSamplerRealMax, kSamplerRealMax, "a finite number",
     "Temperature; of the tokens that the other samplers leave, 0 takes the likeliest token"},
    {"dynatemp-range", "--dynatemp-range", "", KVANT_SAMPLER_NUMBER(dynatemp_range), 0,
     kSamplerRealMax, "0 or more",
     "Raise and lower the temperature by up to this much, depending on the entropy of the tokens; "
     "0 is off"},
    {"dynatemp-exp", "--dynatemp-exp", "", KVANT_SAMPLER_NUMBER(dynatemp_exponent), 0,
     kSamplerRealMax, "0 or more",
     "Exponent of the entropy's share of its maximum, for --dynatemp-range"},
};

Result<std::unique_ptr<SamplerStage>> MakeTemperature(const SamplerSetup& setup) {
  const SamplingOptions& options = setup.options;
  std::unique_ptr<SamplerStage> stage;
  if (options.dynatemp_range > 0) {
    stage = std::make_unique<DynamicTemperatureStage>(options);
  } else {
    stage = std::make_unique<TemperatureStage>(static_cast<double>(options.temperature));
  }
  return stage;
}

}  // namespace

const SamplerRow kTemperatureSampler = {
    .name = "temperature",
    .aliases = "temp",
    .letter = 't',
    .kind = SamplerRow::Kind::kTemperature,
    .order = SamplerRow::Order::kDefault,
    .settings = kTemperatureSettings,
    .make = MakeTemperature,
};

}  // namespace kvant
