// The mixers of families with Kimi delta attention: that, and latent attention in the layers that
// have kv heads.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/metadata.h"
#include "engine/arch/spec.h"

namespace kvant::arch {

struct KdaTraits {
  KdaDecays decays = KdaDecays::kFree;
  std::optional<cpu::RopeStyle> rope = {};  // of the latent attentions; nothing: no rotation
  bool gated = false;                       // whether their heads have gates
};

// The mixer of each layer of a stack, with the rope of the attentions.
Result<std::vector<Block>> ReadKdaMixers(const Metadata& metadata, const Stack& stack,
                                         const KdaTraits& traits, std::vector<RopeSpec>& ropes);

}  // namespace kvant::arch
