#include "engine/graph/rowwise/norm.h"

#include <cstring>

#include "cpu/kernels/table.h"

namespace kvant::graph {

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
  const float* weight = norm.weight.data() + first;
  const float* bias = norm.bias.empty() ? nullptr : norm.bias.data() + first;
  if (norm.kind == NormKind::kLayer) {
    return kernels.layer_norm(x, weight, bias, cols, norm.epsilon, out);
  }
  kernels.rms_norm(x, weight, cols, norm.epsilon, out);
  if (bias != nullptr) kernels.add(out, bias, cols, out);
}

}  // namespace kvant::graph
