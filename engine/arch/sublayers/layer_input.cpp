#include "engine/arch/sublayers/layer_input.h"

#include <cmath>
#include <numbers>

#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/gate_nodes.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

Result<ValueId> LayerInputs::AddNodes(const ModelSpec& spec, ValueId stream,
                                      graph::PlanBuilder& plan) const {
  const int64_t columns = layers * width;
  const int64_t dim = spec.stacks.front().dim;
  KVANT_ASSIGN(const formats::GgufTensor* table,
               plan.Matrix("per_layer_token_embd.weight", columns, spec.vocab));
  std::vector<MatMulOperand> projection;
  KVANT_TRY(plan.AddOperand(projection, "per_layer_model_proj", dim, columns));
  projection.front().scale /= std::sqrt(static_cast<float>(dim));
  KVANT_ASSIGN(const graph::Norm one, ReadNorm(plan, norm, "", width));
  // The last factor of the inputs is one of both terms.
  constexpr float kShare = std::numbers::sqrt2_v<float> / 2;
  graph::Norm all = {.kind = one.kind, .epsilon = one.epsilon};
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const float weight : one.weight) all.weight.push_back(kShare * weight);
  }
  const ValueId inputs = plan.NewFloats("layer_inputs", RowSpace::kPass, columns);
  plan.Add(RowSpace::kPass,
           graph::MakeEmbed(*table, kShare * std::sqrt(static_cast<float>(width)), inputs));
  const Activations in = plan.NewActivations("layer_inputs.x", RowSpace::kPass, dim, projection);
  plan.Add(RowSpace::kPass, graph::MakeNorm(plan.kernels(), "layer_inputs.x",
                                            {.kind = NormKind::kNone}, stream, in));
  const ValueId projected = plan.NewFloats("per_layer_model_proj", RowSpace::kPass, columns);
  plan.AddMatMul(RowSpace::kPass, "per_layer_model_proj", std::move(projection), in, projected,
                 cpu::Store::kSet);
  plan.Add(RowSpace::kPass, graph::MakeNormPieces(plan.kernels(), std::string(norm.tensor),
                                                  std::move(all), 0, layers, projected));
  plan.Add(RowSpace::kPass,
           graph::MakeAddNorm(plan.kernels(), "layer_inputs.add", {.kind = NormKind::kNone},
                              columns, 1.0f, projected, inputs));
  return inputs;
}

Status LayerInput::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const StackedMatrix gate_matrix[] = {{"inp_gate", width}};
  const StackedMatrix out_matrix[] = {{"proj", builder.dim()}};
  KVANT_ASSIGN(std::vector<MatMulOperand> gate, builder.Separate(builder.dim(), gate_matrix));
  KVANT_ASSIGN(std::vector<MatMulOperand> out, builder.Separate(width, out_matrix));
  KVANT_ASSIGN(const Activations in, builder.AddInput("inp_gate.x", gate));
  const std::string name = builder.Name("inp_gate");
  const ValueId gates = plan.NewFloats(name, RowSpace::kPass, width);
  plan.AddMatMul(RowSpace::kPass, name, std::move(gate), in, gates, cpu::Store::kSet);
  const Activations product =
      plan.NewActivations(builder.Name("inp_gated"), RowSpace::kPass, width, out);
  plan.Add(RowSpace::kPass,
           graph::MakeActivatedProduct(plan.kernels(), builder.Name("inp_gated"), activation, gates,
                                       builder.shared().layer_inputs,
                                       static_cast<int64_t>(builder.layer()) * width, product));
  const StackValues& shared = builder.shared();
  if (shared.streams == graph::kNoValue) {
    return builder.AddToStream("proj", std::move(out), product);
  }
  const ValueId added = plan.NewFloats(builder.Name("post"), RowSpace::kPass, builder.dim());
  SublayerBuilder elsewhere = builder.Into({added, cpu::Store::kSet});
  KVANT_TRY(elsewhere.AddToStream("proj", std::move(out), product));
  plan.Add(RowSpace::kPass, graph::MakeAddToStreams(builder.Name("proj.streams"),
                                                    shared.stream_shape, added, shared.streams));
  return {};
}

Result<std::optional<LayerInputs>> ReadLayerInputs(const Metadata& metadata, const Stack& stack) {
  KVANT_ASSIGN(const int64_t width,
               metadata.CountOr("embedding_length_per_layer_input", kDimMax, 0));
  if (width == 0) return std::optional<LayerInputs>();
  LayerInputs inputs;
  inputs.width = width;
  inputs.layers = std::ssize(stack.layers);
  inputs.norm = {stack.final_norm.kind, "per_layer_proj_norm", stack.final_norm.epsilon};
  return std::optional(inputs);
}

}  // namespace kvant::arch
