#include "quant/search/ternary_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace kvant::quant {

namespace {

// Magnitudes of a row, finite, and their weights.
struct Magnitudes {
  std::vector<float> sizes;
  std::vector<double> weights;
  float peak = 0;

  Magnitudes(const float* values, const float* importance, int64_t count)
      : sizes(static_cast<size_t>(count)), weights(static_cast<size_t>(count), 1.0) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const float size = std::fabs(values[i]);
      sizes[i] = std::isnan(size) ? 0 : std::min(size, std::numeric_limits<float>::max());
      peak = std::max(peak, sizes[i]);
    }
    double heaviest = 0;
    for (int64_t i = 0; importance != nullptr && i < count; ++i) {
      if (std::isfinite(importance[i])) heaviest = std::max(heaviest, double{importance[i]});
    }
    if (heaviest == 0) return;
    // A trace of weight everywhere keeps unimportant values sensible.
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = std::isfinite(importance[i]) ? std::max(importance[i] / heaviest, 1e-6) : 1e-6;
    }
  }
};

// The values that are not zero, added up.
struct ChosenSum {
  double product = 0;  // of magnitudes and weights
  double weight = 0;

  void Add(double size, double its_weight) {
    product += its_weight * size;
    weight += its_weight;
  }
  double Scale() const { return product / weight; }  // their mean, the best scale for them
  double Gain() const { return product * Scale(); }  // what it takes off the squared error
};

ChosenSum SumBeyond(const Magnitudes& row, double threshold) {
  ChosenSum sum;
  for (size_t i = 0; i < row.sizes.size(); ++i) {
    const bool is_beyond = double{row.sizes[i]} > threshold;
    sum.Add(is_beyond ? double{row.sizes[i]} : 0.0, is_beyond ? row.weights[i] : 0.0);
  }
  return sum;
}

// Magnitudes by their logarithm, 256 bins an octave and sixteen octaves below the peak. With a
// given scale the magnitudes of the first bins, down to some bin, are not zero; the greatest gain
// of all such cuts is the best one but for the width of a bin.
ChosenSum BestOfBins(const Magnitudes& row) {
  constexpr int kBins = 4096;
  constexpr int kShift = 15;
  std::vector<ChosenSum> bins(kBins);
  const auto top = std::bit_cast<int32_t>(row.peak);
  for (size_t i = 0; i < row.sizes.size(); ++i) {
    const int32_t below = (top - std::bit_cast<int32_t>(row.sizes[i])) >> kShift;
    ChosenSum& bin = bins[static_cast<size_t>(std::min(below, kBins - 1))];
    bin.Add(double{row.sizes[i]}, row.weights[i]);
  }
  ChosenSum best = bins[0];
  ChosenSum sum;
  for (const ChosenSum& bin : bins) {
    sum.product += bin.product;
    sum.weight += bin.weight;
    if (sum.Gain() > best.Gain()) best = sum;
  }
  return best;
}

}  // namespace

TernaryRowFit FitTernaryRow(const float* values, const float* importance, int64_t count,
                            float greatest) {
  const Magnitudes row(values, importance, count);
  TernaryRowFit fit{0, std::vector<uint8_t>(static_cast<size_t>(count), 1)};
  if (row.peak == 0) return fit;

  // Values beyond half of a scale become 1; with their mean as the scale others may be beyond half.
  constexpr int kRounds = 8;
  ChosenSum best = BestOfBins(row);
  for (int round = 0; round < kRounds; ++round) {
    const ChosenSum next = SumBeyond(row, best.Scale() / 2);
    if (next.weight == 0 || next.Gain() <= best.Gain()) break;
    best = next;
  }
  fit.d = static_cast<float>(std::min(best.Scale(), double{greatest}));
  for (size_t i = 0; i < row.sizes.size(); ++i) {
    if (double{row.sizes[i]} <= best.Scale() / 2) continue;
    fit.codes[i] = values[i] > 0 ? 2 : 0;
  }
  return fit;
}

}  // namespace kvant::quant
