#include "engine/arch/sublayers/gated_ffn.h"

#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"
#include "engine/graph/rowwise/stream_nodes.h"
#include "formats/gguf.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;

// Gate and up are one matrix where there is no gate and `up` does not have the rows of up alone.
bool IsFused(const GatedFfn& ffn, SublayerBuilder& builder) {
  if (builder.plan().Find(builder.Name("ffn_gate.weight")) != nullptr) return false;
  const formats::GgufTensor* up = builder.plan().Find(builder.Name("ffn_up.weight"));
  return up != nullptr && up->dims[1] != ffn.width;
}

}  // namespace

Status GatedFfn::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const StackedMatrix separate[] = {{"ffn_gate", width}, {"ffn_up", width}};
  const StackedMatrix fused[] = {{"ffn_up", 2 * width}};
  const StackedMatrix down[] = {{"ffn_down", builder.dim()}};
  KVANT_ASSIGN(std::vector<MatMulOperand> gate_up_operands,
               IsFused(*this, builder) ? builder.Separate(builder.dim(), fused)
                                       : builder.Separate(builder.dim(), separate));
  KVANT_ASSIGN(std::vector<MatMulOperand> down_operands, builder.Separate(width, down));

  KVANT_ASSIGN(const Activations normed, builder.AddInput("ffn_normed", gate_up_operands));
  const std::string gate_up_name = builder.Name("gate_up");
  const graph::ValueId gate_up = plan.NewFloats(gate_up_name, RowSpace::kPass, 2 * width);
  const Activations product =
      plan.NewActivations(builder.Name("gated"), RowSpace::kPass, width, down_operands);
  if (deviations.has_value()) {
    plan.AddMatMul(RowSpace::kPass, gate_up_name, std::move(gate_up_operands), normed, gate_up,
                   cpu::Store::kSet);
    plan.Add(RowSpace::kPass,
             graph::MakeSparseGate(plan.kernels(), builder.Name("gated"), activation.activation,
                                   *deviations, gate_up, product));
    return builder.AddToStream("ffn_down", std::move(down_operands), product);
  }
  plan.AddObserver(RowSpace::kPass, gate_up_name, normed);
  Activations unit = product;
  if (product_norm.has_value()) {
    unit = {.cols = width};
    unit.floats = plan.NewFloats(builder.Name("unnormed"), RowSpace::kPass, width);
  }
  plan.AddGatedUnit(gate_up_name, std::move(gate_up_operands), normed, activation, gate_up, unit);
  if (product_norm.has_value()) {
    KVANT_ASSIGN(graph::Norm norm, ReadNorm(plan, *product_norm, builder.Name(""), width));
    plan.Add(RowSpace::kPass, graph::MakeNorm(plan.kernels(), builder.Name("ffn_sub_norm"),
                                              std::move(norm), unit.floats, product));
  }
  return builder.AddToStream("ffn_down", std::move(down_operands), product);
}

Result<std::vector<GatedFfn>> ReadGatedFfns(const Metadata& metadata, const Stack& stack,
                                            cpu::Activation activation) {
  KVANT_ASSIGN(const auto widths,
               metadata.CountPerLayer("feed_forward_length", stack.layers.size(), kDimMax, {}));
  std::vector<GatedFfn> ffns;
  for (const int64_t width : widths) {
    ffns.emplace_back(GatedFfn{.width = width, .activation = activation});
  }
  return ffns;
}

}  // namespace kvant::arch
