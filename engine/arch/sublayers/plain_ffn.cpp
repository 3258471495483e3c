#include "engine/arch/sublayers/plain_ffn.h"

#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"

namespace kvant::arch {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;

Status PlainFfn::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const StackedMatrix up_matrix[] = {{"ffn_up", width}};
  const StackedMatrix down_matrix[] = {{"ffn_down", builder.dim()}};
  KVANT_ASSIGN(std::vector<MatMulOperand> up, builder.Separate(builder.dim(), up_matrix));
  KVANT_ASSIGN(std::vector<MatMulOperand> down, builder.Separate(width, down_matrix));

  KVANT_ASSIGN(const Activations normed, builder.AddInput("ffn_normed", up));
  const std::string up_name = builder.Name("up");
  const graph::ValueId product = plan.NewFloats(up_name, RowSpace::kPass, width);
  const Activations activated =
      plan.NewActivations(builder.Name("activated"), RowSpace::kPass, width, down);
  if (xielu.has_value()) {
    plan.AddMatMul(RowSpace::kPass, up_name, std::move(up), normed, product, cpu::Store::kSet);
    plan.Add(RowSpace::kPass,
             graph::MakeXielu(plan.kernels(), builder.Name("xielu"), *xielu, product, activated));
    return builder.AddToStream("ffn_down", std::move(down), activated);
  }
  plan.AddActivatedMatMul(up_name, std::move(up), normed, activation, product, activated);
  return builder.AddToStream("ffn_down", std::move(down), activated);
}

Result<std::vector<PlainFfn>> ReadPlainFfns(const Metadata& metadata, const Stack& stack,
                                            cpu::Activation activation) {
  KVANT_ASSIGN(const auto widths,
               metadata.CountPerLayer("feed_forward_length", stack.layers.size(), kDimMax, {}));
  std::vector<PlainFfn> ffns;
  for (const int64_t width : widths) {
    ffns.push_back({.width = width, .activation = activation});
  }
  return ffns;
}

}  // namespace kvant::arch
