// Locally typical sampling (Meister et al., 2022): keeps the tokens whose surprise, -log p, is
// nearest to the entropy until their probabilities together exceed p. The likeliest token may be
// removed.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/generate/portable_math.h"
#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

constexpr size_t kTypicalRanges = 1024;  // their sums stay in the first-level cache
constexpr size_t kTypicalOfRange = 8;

// Distances from `least` to `most`, cut into ranges of equal width.
class DistanceRanges {
 public:
  DistanceRanges(double least, double most, size_t count) : least_(least), count_(count) {
    per_range_ = most > least ? static_cast<double>(count - 1) / (most - least) : 0;
  }

  size_t count() const { return count_; }
  // Below count(), and never less for a greater distance. Counts and ranges fit 32 bits.
  size_t Of(double distance) const {
    return static_cast<size_t>(static_cast<int32_t>((distance - least_) * per_range_));
  }

 private:
  double least_;
  double per_range_;
  size_t count_;
};

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
    Select(total, enough);
    SortSelected(candidates);
    uint64_t sum = 0;
    kept_.clear();
    for (const Typical& entry : selected_) {
      kept_.push_back(candidates[entry.index]);
      sum += kept_.back().weight;
      if (IsEnough(sum, kept_.size(), enough)) break;
    }
    candidates.Replace(kept_);
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
    double entropy = 0;
    for (size_t k = 0; k < count; ++k) {
      distances_[k] = log_total - distances_[k];
      entropy += weights_[k] / total * distances_[k];
    }
    for (double& distance : distances_) distance = std::fabs(distance - entropy);
  }

  // selected_ gets the tokens that stay and a few more, nothing sorted: those of the nearest ranges
  // of distances whose probabilities are enough together. No surprise is above log(total).
  void Select(double total, double enough) {
    const DistanceRanges ranges(0, PortableLog(total), kTypicalRanges);
    std::array<uint64_t, kTypicalRanges> sums{};
    std::array<uint32_t, kTypicalRanges> counts{};
    ranges_.resize(distances_.size());
    for (size_t k = 0; k < distances_.size(); ++k) {
      const size_t range = ranges.Of(distances_[k]);
      ranges_[k] = static_cast<uint16_t>(range);
      sums[range] += static_cast<uint64_t>(static_cast<int64_t>(weights_[k]));
      ++counts[range];
    }
    uint64_t sum = 0;
    size_t count = 0;
    size_t last = 0;
    for (; last < kTypicalRanges; ++last) {
      sum += sums[last];
      count += counts[last];
      if (IsEnough(sum, count, enough)) break;
    }
    selected_.clear();
    for (size_t k = 0; k < distances_.size(); ++k) {
      if (ranges_[k] <= last) selected_.push_back({distances_[k], indices_[k]});
    }
  }

  // Sorts selected_, the nearest first, of equal ones the lower id: first into ranges of a few,
  // then each range.
  void SortSelected(const Candidates& candidates) {
    const auto is_nearer = [&](const Typical& a, const Typical& b) {
      if (a.distance != b.distance) return a.distance < b.distance;
      return candidates[a.index].id < candidates[b.index].id;
    };
    const auto by_distance = [](const Typical& a, const Typical& b) {
      return a.distance < b.distance;
    };
    const auto [least, most] = std::minmax_element(selected_.begin(), selected_.end(), by_distance);
    const DistanceRanges ranges(least->distance, most->distance,
                                selected_.size() / kTypicalOfRange + 1);
    ends_.assign(ranges.count() + 1, 0);
    for (const Typical& entry : selected_) ++ends_[ranges.Of(entry.distance) + 1];
    for (size_t range = 1; range <= ranges.count(); ++range) ends_[range] += ends_[range - 1];
    sorted_.resize(selected_.size());
    for (const Typical& entry : selected_) sorted_[ends_[ranges.Of(entry.distance)]++] = entry;
    std::swap(selected_, sorted_);
    uint32_t begin = 0;
    for (size_t range = 0; range < ranges.count(); ++range) {
      const auto first = selected_.begin() + begin;
      const auto end = selected_.begin() + ends_[range];
      if (!std::is_sorted(first, end, is_nearer)) std::sort(first, end, is_nearer);
      begin = ends_[range];
    }
  }

  double p_;
  size_t keep_min_;
  std::vector<uint32_t> indices_;  // of candidates with a probability
  std::vector<double> weights_;    // of these
  std::vector<double> distances_;  // of these
  std::vector<uint16_t> ranges_;   // of these
  std::vector<Typical> selected_;
  std::vector<Typical> sorted_;  // scratch of SortSelected
  std::vector<uint32_t> ends_;   // of ranges in sorted_
  std::vector<TokenCandidate> kept_;
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
