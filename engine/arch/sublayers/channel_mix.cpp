#include "engine/arch/sublayers/channel_mix.h"

#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayers/rwkv_parts.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/gate_nodes.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/recurrent/rwkv_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

// The target of a mix, "channel_mix_lerp_k", which `readers` read.
Result<graph::TokenMix::Target> MixTarget(SublayerBuilder& builder, std::string_view name,
                                          const std::vector<MatMulOperand>& readers) {
  graph::TokenMix::Target target;
  KVANT_ASSIGN(target.factors,
               builder.plan().Vector(builder.Name(name) + ".weight", builder.dim()));
  target.out =
      builder.plan().NewActivations(builder.Name(name), RowSpace::kPass, builder.dim(), readers);
  return target;
}

}  // namespace

Status ChannelMix::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const int64_t dim = builder.dim();
  const bool gated = receptance == Receptance::kYes;
  const StackedMatrix key_matrix[] = {{"channel_mix_key", width}};
  const StackedMatrix value_matrix[] = {{"channel_mix_value", dim}};
  const StackedMatrix gate_matrix[] = {{"channel_mix_receptance", dim}};
  KVANT_ASSIGN(std::vector<MatMulOperand> key, builder.Separate(dim, key_matrix));
  KVANT_ASSIGN(std::vector<MatMulOperand> value, builder.Separate(width, value_matrix));
  std::vector<MatMulOperand> gate;
  if (gated) {
    KVANT_ASSIGN(gate, builder.Separate(dim, gate_matrix));
  }

  KVANT_ASSIGN(const ValueId normed, builder.AddFloatInput("channel_mix_normed"));
  graph::TokenMix mix = {.cols = dim};
  mix.state.cache_id = plan.plan().AddCacheLayer({.state_floats = dim});
  KVANT_ASSIGN(auto key_target, MixTarget(builder, "channel_mix_lerp_k", key));
  const Activations key_in = key_target.out;
  mix.targets.push_back(std::move(key_target));
  Activations gate_in;
  if (gated) {
    KVANT_ASSIGN(auto gate_target, MixTarget(builder, "channel_mix_lerp_r", gate));
    gate_in = gate_target.out;
    mix.targets.push_back(std::move(gate_target));
  }
  plan.Add(RowSpace::kPass, graph::MakeTokenMix(plan.kernels(), builder.Name("channel_mix_lerp"),
                                                std::move(mix), normed));
  const std::string key_name = builder.Name("channel_mix_key");
  const ValueId product = plan.NewFloats(key_name, RowSpace::kPass, width);
  plan.AddMatMul(RowSpace::kPass, key_name, std::move(key), key_in, product, cpu::Store::kSet);
  const std::string activated_name = builder.Name("channel_mix_activated");
  const Activations activated = plan.NewActivations(activated_name, RowSpace::kPass, width, value);
  plan.Add(RowSpace::kPass, graph::MakeActivate(plan.kernels(), activated_name,
                                                cpu::Activation::kReluSquared, product, activated));
  SublayerBuilder::Target target = builder.BeginResult("channel_mix_value");
  if (!gated) {
    plan.AddMatMul(RowSpace::kPass, builder.Name("channel_mix_value"), std::move(value), activated,
                   target.value, target.store);
  } else {
    const std::string gate_name = builder.Name("channel_mix_receptance");
    const ValueId gates = plan.NewFloats(gate_name, RowSpace::kPass, dim);
    plan.AddMatMul(RowSpace::kPass, gate_name, std::move(gate), gate_in, gates, cpu::Store::kSet);
    const std::string out_name = builder.Name("channel_mix_value");
    const ValueId out = plan.NewFloats(out_name, RowSpace::kPass, dim);
    plan.AddMatMul(RowSpace::kPass, out_name, std::move(value), activated, out, cpu::Store::kSet);
    const graph::ResultGates of = {cpu::Activation::kSigmoid, gates, 0, dim};
    plan.Add(RowSpace::kPass, graph::MakeResultGate(plan.kernels(), gate_name + ".sigmoid", of, out,
                                                    {.floats = out, .cols = dim}));
    plan.Add(RowSpace::kPass,
             graph::MakeAddNorm(plan.kernels(), out_name + ".add", {.kind = graph::NormKind::kNone},
                                dim, 1, out, target.value));
  }
  if (stream_scale != 1) {
    plan.Add(RowSpace::kPass,
             graph::MakeScale(builder.Name("rescale"), stream_scale, target.value, dim));
  }
  return {};
}

Result<std::vector<ChannelMix>> ReadChannelMixes(const Metadata& metadata, const Stack& stack,
                                                 Receptance receptance) {
  KVANT_ASSIGN(const auto widths,
               metadata.CountPerLayer("feed_forward_length", stack.layers.size(), kDimMax, {}));
  std::vector<ChannelMix> mixes;
  for (const int64_t width : widths) mixes.push_back({.width = width, .receptance = receptance});
  return mixes;
}

}  // namespace kvant::arch
