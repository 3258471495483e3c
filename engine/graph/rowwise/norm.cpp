#include "engine/graph/rowwise/norm.h"

#include <cstring>

#include "cpu/kernels/table.h"

namespace kvant::graph {
namespace {

// The kernels, too, keep a sum in sixteen lanes, which the compiler turns into vectors of any width
// without moving a bit.
constexpr int64_t kMeanLanes = 16;

float MeanOf(const float* x, int64_t cols) {
  float lanes[kMeanLanes] = {};
  int64_t i = 0;
  for (; i + kMeanLanes <= cols; i += kMeanLanes) {
    for (int64_t lane = 0; lane < kMeanLanes; ++lane) lanes[lane] += x[i + lane];
  }
  for (int64_t lane = 0; i + lane < cols; ++lane) lanes[lane] += x[i + lane];
  for (int64_t half = kMeanLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0] / static_cast<float>(cols);
}

}  // namespace

std::string_view NormName(NormKind kind) {
  switch (kind) {
    case NormKind::kNone: return "copy";
    case NormKind::kRms: return "rms_norm";
    case NormKind::kLayer: return "layer_norm";
  }
  return "";
}

void ApplyNorm(const cpu::KernelTable& kernels, const Norm& norm, int64_t first, int64_t cols,
               const float* x, float* out) {
  if (norm.kind == NormKind::kNone) {
    if (out != x) std::memcpy(out, x, static_cast<size_t>(cols) * sizeof(float));
    return;
  }
  if (norm.kind == NormKind::kLayer) {
    const float mean = MeanOf(x, cols);
    for (int64_t i = 0; i < cols; ++i) out[i] = x[i] - mean;
    x = out;
  }
  kernels.rms_norm(x, norm.weight.data() + first, cols, norm.epsilon, out);
  if (!norm.bias.empty()) kernels.add(out, norm.bias.data() + first, cols, out);
}

}  // namespace kvant::graph
