// Top-n-sigma (Tang et al., "Top-nσ: not all logits are you need", 2024): keeps the tokens whose
// logit is within n standard deviations of the largest one. Mean and deviation are those of the
// finite logits; the temperature cancels out.
#include <array>
#include <cmath>
#include <limits>

#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

// Sums in this many places, so that additions need not wait for each other. Their order is fixed.
constexpr size_t kSigmaLanes = 8;

// The sum of term(logit) over n logits that are finite; -infinity counts nothing.
template <class Logit, class Term>
double SumFinite(size_t n, Logit logit, Term term) {
  std::array<double, kSigmaLanes> sums{};
  const auto add = [&](size_t i, size_t lane) {
    const float value = logit(i);
    const bool is_finite = value > -std::numeric_limits<float>::infinity();
    sums[lane] += is_finite ? term(static_cast<double>(value)) : 0.0;
  };
  size_t i = 0;
  for (; i + kSigmaLanes <= n; i += kSigmaLanes) {
    for (size_t lane = 0; lane < kSigmaLanes; ++lane) add(i + lane, lane);
  }
  for (size_t lane = 0; i < n; ++i, ++lane) add(i, lane);
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

class TopNSigmaStage final : public CopiedStage<TopNSigmaStage> {
 public:
  explicit TopNSigmaStage(double n) : n_(n) {}

  void Apply(Candidates& candidates, Xoshiro256&) override {
    if (candidates.is_list()) {
      candidates.SortAll();
      const double least = Least(candidates.size(), [&](size_t i) { return candidates[i].logit; });
      size_t count = 1;
      while (count < candidates.size() && static_cast<double>(candidates[count].logit) >= least) {
        ++count;
      }
      candidates.Truncate(count);
      return;
    }
    const std::span<float> row = candidates.row();
    const double least = Least(row.size(), [&](size_t i) { return row[i]; });
    for (float& logit : row) {
      if (static_cast<double>(logit) < least) logit = -std::numeric_limits<float>::infinity();
    }
  }

 private:
  template <class Logit>
  double Least(size_t size, Logit logit) const {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    const double count = SumFinite(size, logit, [](double) { return 1.0; });
    if (count < 2) return kNone;
    const double mean = SumFinite(size, logit, [](double value) { return value; }) / count;
    const double squares =
        SumFinite(size, logit, [&](double value) { return (value - mean) * (value - mean); });
    double best = kNone;
    for (size_t i = 0; i < size; ++i) best = std::max(best, static_cast<double>(logit(i)));
    return best - n_ * std::sqrt(squares / count);
  }

  double n_;
};

constexpr SamplerSetting kTopNSigmaSettings[] = {
    {"top-n-sigma", "--top-n-sigma,--top-nsigma", "", KVANT_SAMPLER_NUMBER(top_n_sigma),
     -kSamplerRealMax, kSamplerRealMax, "a finite number",
     "Keep the tokens within N standard deviations of the largest logit; 0 or less is off"},
};

Result<std::unique_ptr<SamplerStage>> MakeTopNSigma(const SamplerSetup& setup) {
  std::unique_ptr<SamplerStage> stage;
  const float n = setup.options.top_n_sigma;
  if (n > 0) stage = std::make_unique<TopNSigmaStage>(static_cast<double>(n));
  return stage;
}

}  // namespace

const SamplerRow kTopNSigmaSampler = {
    .name = "top_n_sigma",
    .aliases = "top-n-sigma",
    .letter = 's',
    .kind = SamplerRow::Kind::kLogits,
    .order = SamplerRow::Order::kDefault,
    .settings = kTopNSigmaSettings,
    .make = MakeTopNSigma,
    .filters_logits = true,
};

}  // namespace kvant
