// Norms of vectors, and what a plan knows of one:
//   kNone   x
//   kRms    x / sqrt(mean(x^2) + epsilon) * weight
//   kLayer  the same of x - mean(x), plus bias
// Source of kLayer: Ba et al. 2016 (arXiv 1607.06450).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

enum class NormKind : uint8_t { kNone, kRms, kLayer };

// "copy", "rms_norm", "layer_norm": for printed plans.
std::string_view NormName(NormKind kind);

struct Norm {
  NormKind kind = NormKind::kRms;
  float epsilon = 0;
  std::vector<float> weight = {};  // ones where the model has none
  std::vector<float> bias = {};    // as many, for kLayer; empty: none

  int64_t cols() const { return static_cast<int64_t>(weight.size()); }
};

// Writes the norm of `cols` values with the weights from column `first` on; out may be x. Weights
// that several vectors share are taken again and again from the same column.
void ApplyNorm(const cpu::KernelTable& kernels, const Norm& norm, int64_t first, int64_t cols,
               const float* x, float* out);

}  // namespace kvant::graph
