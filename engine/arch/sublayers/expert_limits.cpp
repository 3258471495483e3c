#include "engine/arch/sublayers/expert_limits.h"

#include <cmath>

#include "base/result.h"

namespace kvant::arch {
namespace {

// The x of x / (1 + exp(-x)) = bound, where SiLU grows, by Newton's method: within bound and
// bound + 1 (SiLU is below x, by less than 0.28).
float GateOfBound(float bound) {
  double x = static_cast<double>(bound) + 0.28;
  for (int i = 0; i < 20; ++i) {
    const double sigmoid = 1 / (1 + std::exp(-x));
    x -= (x * sigmoid - static_cast<double>(bound)) / (sigmoid * (1 + x * (1 - sigmoid)));
  }
  return static_cast<float>(x);
}

}  // namespace

void SetLimits(ExpertLimits limits, float bound, cpu::GateActivation& activation) {
  if (bound <= 0) return;
  activation.gate_max = limits == ExpertLimits::kAfterActivation ? GateOfBound(bound) : bound;
  activation.up_max = bound;
}

Result<std::vector<float>> ReadBounds(const Metadata& metadata, const char* key, size_t layers) {
  std::vector<float> bounds(layers);
  if (!metadata.Has(key)) return bounds;
  KVANT_ASSIGN(const auto found, metadata.NumberPerLayer(key, layers));
  for (size_t i = 0; i < layers; ++i) {
    if (!(found[i] >= 0)) {
      return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected at least 0, found {}",
                       metadata.file().path(), metadata.Key(key), found[i]);
    }
    bounds[i] = found[i];
  }
  return bounds;
}

Status LimitFfns(const Metadata& metadata, ExpertLimits limits, std::vector<GatedFfn>& ffns) {
  if (limits == ExpertLimits::kNone) return {};
  KVANT_ASSIGN(const auto bounds, ReadBounds(metadata, kSharedLimitKey, ffns.size()));
  for (size_t i = 0; i < ffns.size(); ++i) SetLimits(limits, bounds[i], ffns[i].activation);
  return {};
}

}  // namespace kvant::arch
