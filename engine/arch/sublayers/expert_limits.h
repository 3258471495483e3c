// Bounds of the gates and ups of experts, of shared experts and of the feed-forwards of layers
// without experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/metadata.h"
#include "engine/arch/sublayers/gated_ffn.h"

namespace kvant::arch {

// How the keys swiglu_clamp_exp and swiglu_clamp_shexp bound the gates of experts and of the shared
// expert: a bound for each layer, where 0 means none. Ups are between the bound and its negative.
enum class ExpertLimits : uint8_t {
  kNone,              // a family without the keys
  kBeforeActivation,  // activation(min(gate, bound))
  kAfterActivation,   // min(activation(gate), bound)
};
inline constexpr const char* kExpertLimitKey = "swiglu_clamp_exp";
inline constexpr const char* kSharedLimitKey = "swiglu_clamp_shexp";

// The bounds of all layers by one of these keys, a number for all layers or one for each; 0 where
// the key is absent.
Result<std::vector<float>> ReadBounds(const Metadata& metadata, const char* key, size_t layers);

// Gives an activation, which must be SiLU, a bound.
void SetLimits(ExpertLimits limits, float bound, cpu::GateActivation& activation);

// Bounds the gates and ups of feed-forwards beside layers with experts as those of shared experts.
Status LimitFfns(const Metadata& metadata, ExpertLimits limits, std::vector<GatedFfn>& ffns);

}  // namespace kvant::arch
