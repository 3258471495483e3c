// A mixture of experts: out = sum of weight * expert(x) over a few experts that a router chooses
// for each token, plus a shared expert for all tokens. An expert is a gated feed-forward, or one
// without gates, and may read a smaller row than the stream's.
//   logits = router . x + bias                     the choice and the weights: graph::Routing
//   weight * expert(x) is expert(weight * x) in some families
//   expert(x) = down . (activation(gate . x) * (up . x)), with optional biases
//   expert(x) = down . activation(up . x) without gates
//   sum of experts = latent_up . (the sum over latent_down . x) with latents
// A bias may be added to the sum of experts without latents.
//
// Tensors: ffn_gate_inp, the router, and exp_probs_b.bias, the bias of the choice; ffn_gate_exps
// and ffn_up_exps, or ffn_gate_up_exps with the rows of the gate first, and ffn_down_exps, each
// [columns x rows x experts]; ffn_exps.bias, [dim]; ffn_latent_down and ffn_latent_up. The shared
// expert: ffn_gate_shexp and ffn_up_shexp, or both in ffn_up_shexp, the rows of the gate first;
// ffn_down_shexp, and ffn_gate_inp_shexp, [dim], for its own weight. Without gates the tensors
// named after them are missing. ffn_gate_inp.scale, [dim], belongs to RouterInput.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/metadata.h"
#include "engine/arch/sublayers/expert_limits.h"
#include "engine/graph/matmul/expert_nodes.h"

namespace kvant::arch {

struct Stack;
class SublayerBuilder;

enum class SharedExpert : uint8_t {
  kNone,
  kPlain,  // added as it is
  kGated,  // times sigmoid(ffn_gate_inp_shexp . x)
};

enum class ExpertKind : uint8_t { kGated, kPlain };
// The router's input.
enum class RouterInput : uint8_t {
  kNormed,  // what the experts read
  // The stream after an RMS norm without weights, times ffn_gate_inp.scale / sqrt(dim).
  kScaled,
};

struct Experts {
  graph::Routing routing;
  int64_t width = 0;  // of each expert
  cpu::GateActivation activation = cpu::Activation::kSilu;
  cpu::GateActivation shared_activation = cpu::Activation::kSilu;
  ExpertKind kind = ExpertKind::kGated;  // of the shared expert, too
  int64_t latent = 0;  // columns that experts read and write; 0: those of the stream
  SharedExpert shared = SharedExpert::kNone;
  int64_t shared_width = 0;
  RouterInput router_input = RouterInput::kNormed;
  float router_epsilon = 0;  // of the norm of kScaled

  Status AddNodes(SublayerBuilder& builder) const;
};

// The traits of a family's experts where the metadata do not say otherwise.
struct ExpertTraits {
  graph::Gating gating = graph::Gating::kSoftmax;
  bool normalize = false;
  graph::GroupScore group_score = graph::GroupScore::kMax;
  // A plain one may be missing from a file whose metadata do not name it.
  SharedExpert shared = SharedExpert::kNone;
  cpu::Activation activation = cpu::Activation::kSilu;
  ExpertKind kind = ExpertKind::kGated;
  bool by_logits = false;  // see graph::Routing
  graph::Weighs weighs = graph::Weighs::kResult;
  float jitter = 0;  // of graph::Routing, for Gating::kSparseMixer
  RouterInput router_input = RouterInput::kNormed;
  ExpertLimits limits = ExpertLimits::kNone;
};

// The experts of each layer; nothing for layers without a router. By expert_count,
// expert_used_count, expert_feed_forward_length (otherwise feed_forward_length),
// expert_gating_func, expert_group_count, expert_group_used_count, expert_weights_norm,
// expert_weights_scale and, without gates, moe_latent_size; the width of a shared expert is that of
// its tensors.
Result<std::vector<std::optional<Experts>>> ReadExperts(const Metadata& metadata,
                                                        const Stack& stack,
                                                        const ExpertTraits& traits);

}  // namespace kvant::arch
