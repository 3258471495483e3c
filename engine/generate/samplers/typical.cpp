// Locally typical sampling (Meister et al., 2022): keeps the tokens whose surprise, -log p, is
// nearest to the entropy until their probabilities together exceed p. The likeliest token may be
// removed.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "engine/generate/portable_math.h"
#include "engine/generate/samplers/range_sums.h"
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
    const double enough = total * p_;
    FindDistances(candidates, total);
    Mark(candidates, enough);
    candidates.KeepIf([this](size_t i) { return stays_[i] != 0; });
  }

 private:
  struct Typical {
    double distance;
    uint32_t index;
  };

  bool IsEnough(uint64_t sum, size_t count, double enough) const {
    return static_cast<double>(sum) > enough && count >= keep_min_;
  }

  // How far each token's surprise is from the entropy. Where p is 0, p log p is 0, and such a token
  // is never typical.
  void FindDistances(const Candidates& candidates, double total) {
    indices_.resize(candidates.size());
    weights_.resize(candidates.size());
    size_t count = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const auto weight = static_cast<int64_t>(candidates[i].weight);
      indices_[count] = static_cast<uint32_t>(i);
      weights_[count] = static_cast<double>(weight);
      count += weight > 0 ? 1 : 0;
    }
    indices_.resize(count);
    weights_.resize(count);
    distances_ = weights_;
    PortableLogs(distances_);
    const double log_total = PortableLog(total);
    for (size_t k = 0; k < count; ++k) {
      distances_[k] = log_total - distances_[k];
      weights_[k] = weights_[k] / total * distances_[k];
    }
    double entropy = 0;
    for (const double term : weights_) entropy += term;
    for (double& distance : distances_) distance = std::fabs(distance - entropy);
  }

  // stays_ gets 1 for all tokens of the ranges of distances before the one in which the
  // probabilities are enough together, and for the nearest of this one; of equally near ones, for
  // the lower ids.
  void Mark(const Candidates& candidates, double enough) {
    const auto most = std::max_element(distances_.begin(), distances_.end());
    near_.Fill(
        distances_.size(), *most, [this](size_t k) { return distances_[k]; },
        [&](size_t k) { return candidates[indices_[k]].weight; });
    const RangeSums::Cut cut =
        near_.Find([&](uint64_t sum, size_t count) { return IsEnough(sum, count, enough); });
    stays_.assign(candidates.size(), 0);
    at_cut_.clear();
    const std::span ranges = near_.ranges();
    for (size_t k = 0; k < ranges.size(); ++k) {
      const uint16_t range = ranges[k];
      stays_[indices_[k]] = range < cut.range ? 1 : 0;
      if (range == cut.range) at_cut_.push_back({distances_[k], indices_[k]});
    }
    const auto is_nearer = [&](const Typical& a, const Typical& b) {
      if (a.distance != b.distance) return a.distance < b.distance;
      return candidates[a.index].id < candidates[b.index].id;
    };
    if (!std::is_sorted(at_cut_.begin(), at_cut_.end(), is_nearer)) {
      std::sort(at_cut_.begin(), at_cut_.end(), is_nearer);
    }
    uint64_t sum = cut.sum_before;
    size_t count = cut.count_before;
    for (const Typical& entry : at_cut_) {
      stays_[entry.index] = 1;
      sum += candidates[entry.index].weight;
      if (IsEnough(sum, ++count, enough)) break;
    }
  }

  double p_;
  size_t keep_min_;
  std::vector<uint32_t> indices_;  // of candidates with a probability
  std::vector<double> weights_;    // of these, then their terms of the entropy
  std::vector<double> distances_;  // of these
  RangeSums near_;                 // scratch of Mark: by distance
  std::vector<Typical> at_cut_;  // scratch of Mark: the range in which the probabilities are enough
  std::vector<uint8_t> stays_;   // of all candidates
};

constexpr SamplerSetting kTypicalSettings[] = {
    {"typical", "--typical,--typical-p", "", KVANT_SAMPLER_NUMBER(typical), 0, 1, "0 to 1",
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
    .kind = SamplerRow::Kind::kChoice,
    .order = SamplerRow::Order::kDefault,
    .settings = kTypicalSettings,
    .make = MakeTypical,
};

}  // namespace kvant
