// A feed-forward and a mixture of experts side by side, which read the same stream, each between
// norms of its own:
//   out = after_ffn(ffn(before_ffn(x))) + after_experts(experts(before_experts(x)))
// The sublayer has no norm before it.
#pragma once

#include "base/result.h"
#include "engine/arch/norm.h"
#include "engine/arch/sublayers/experts.h"
#include "engine/arch/sublayers/gated_ffn.h"

namespace kvant::arch {

class SublayerBuilder;

struct FfnAndExperts {
  GatedFfn ffn;
  Experts experts;
  Norm before_ffn;
  Norm after_ffn;
  Norm before_experts;
  Norm after_experts;

  Status AddNodes(SublayerBuilder& builder) const;
};

}  // namespace kvant::arch
