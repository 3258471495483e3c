// Locally typical sampling (Meister et al., 2022): keeps the tokens whose surprise, -log p, is
// nearest to the entropy until their probabilities together exceed p. The likeliest token may be
// removed.
#include <algorithm>
#include <array>
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
    FindDistances(candidates, total);
    const size_t last = Mark(candidates, total * p_);
    const std::span ranges = near_.ranges();
    candidates.KeepIf([&](size_t i) { return ranges[i] <= last; });
  }

 private:
  static constexpr size_t kBlock = 512;
  static constexpr size_t kLanes = 8;  // divides kBlock

  struct Typical {
    double distance;
    uint32_t index;
  };

  bool IsEnough(uint64_t sum, size_t count, double enough) const {
    return static_cast<double>(sum) > enough && count >= keep_min_;
  }

  // Sets distances_ to how far each token's surprise is from the entropy, and most_ to the largest
  // of them. Where p is 0, p log p is 0; such a token counts as the least likely one that is
  // possible, and is never typical. Goes by blocks that stay in the first-level cache, and sums in
  // kLanes sums, because one sum alone waits for each of its additions.
  void FindDistances(const Candidates& candidates, double total) {
    distances_.resize(candidates.size());
    const double log_total = PortableLog(total);
    std::array<double, kLanes> sums{};
    std::array<double, kBlock> terms{};
    for (size_t begin = 0; begin < distances_.size(); begin += kBlock) {
      const size_t count = std::min(kBlock, distances_.size() - begin);
      const std::span surprises = std::span(distances_).subspan(begin, count);
      for (size_t k = 0; k < count; ++k) {
        terms[k] = static_cast<double>(static_cast<int64_t>(candidates[begin + k].weight));
        surprises[k] = std::max(terms[k], 1.0);
      }
      PortableLogs(surprises);
      for (size_t k = 0; k < count; ++k) {
        surprises[k] = log_total - surprises[k];
        terms[k] = terms[k] / total * surprises[k];
      }
      std::fill(terms.begin() + count, terms.end(), 0);
      for (size_t k = 0; k < kBlock; k += kLanes) {
        for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += terms[k + lane];
      }
    }
    double entropy = 0;
    for (const double sum : sums) entropy += sum;
    std::array<double, kLanes> largest{};
    for (size_t k = 0; k < distances_.size(); k += kLanes) {
      const size_t count = std::min(kLanes, distances_.size() - k);
      for (size_t lane = 0; lane < count; ++lane) {
        const double distance = std::fabs(distances_[k + lane] - entropy);
        distances_[k + lane] = distance;
        largest[lane] = distance > largest[lane] ? distance : largest[lane];
      }
    }
    most_ = *std::max_element(largest.begin(), largest.end());
  }

  // Tokens that stay are those of the ranges of distances up to the returned one: the range in
  // which the probabilities are enough together. Of its tokens only the nearest stay; of equally
  // near ones, those with lower ids.
  size_t Mark(const Candidates& candidates, double enough) {
    near_.Fill(
        distances_.size(), most_, [this](size_t i) { return distances_[i]; },
        [&](size_t i) { return candidates[i].weight; });
    const RangeSums::Cut cut =
        near_.Find([&](uint64_t sum, size_t count) { return IsEnough(sum, count, enough); });
    at_cut_.clear();
    const std::span ranges = near_.ranges();
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (ranges[i] == cut.range) at_cut_.push_back({distances_[i], static_cast<uint32_t>(i)});
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
      if (IsEnough(sum, count, enough)) near_.Leave(entry.index);
      sum += candidates[entry.index].weight;
      ++count;
    }
    return cut.range;
  }

  double p_;
  size_t keep_min_;
  std::vector<double> distances_;  // of all candidates
  double most_ = 0;
  RangeSums near_;               // scratch of Mark: by distance
  std::vector<Typical> at_cut_;  // scratch of Mark: the range in which the probabilities are enough
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
