#include "engine/arch/sublayers/ffn_and_experts.h"

#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayer_builder.h"

namespace kvant::arch {

Status FfnAndExperts::AddNodes(SublayerBuilder& builder) const {
  const graph::ValueId sum =
      builder.plan().NewFloats(builder.Name("ffn_sum"), graph::RowSpace::kPass, builder.dim());
  const Sublayer first = {before_ffn, ffn, after_ffn};
  SublayerBuilder of_ffn = builder.Part(first, {sum, cpu::Store::kSet});
  KVANT_TRY(ffn.AddNodes(of_ffn));
  const Sublayer second = {before_experts, experts, after_experts};
  SublayerBuilder of_experts = builder.Part(second, {sum, cpu::Store::kAdd});
  KVANT_TRY(experts.AddNodes(of_experts));
  return builder.EndResult({sum, cpu::Store::kSet});
}

}  // namespace kvant::arch
