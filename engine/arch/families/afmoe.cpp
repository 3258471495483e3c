// AFMoE (Trinity): norms on both sides of both sublayers, norms of queries and keys, gates of the
// attention's result, a window in three of four layers, which alone have a rotary embedding, and
// experts behind a sigmoid router whose choice has a bias of its own; the first layers have none.
#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::afmoe {
namespace {

constexpr std::string_view kName = "afmoe";
constexpr int64_t kPattern = 4;  // every fourth layer sees all positions

constexpr LayerNorms kNorms = {.after_attention = "post_attention_norm",
                               .after_ffn = "post_ffw_norm"};

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) attention.head_norms = HeadNorms::kRequired;
  KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
  KVANT_TRY(KeepWindows(metadata, windows, attentions));
  KVANT_TRY(ReadWindowRopes(metadata, windows, attentions, model.ropes));
  RotateOnly(windows, attentions);
  KVANT_TRY(ReadResultGates(metadata, stack, cpu::Activation::kSigmoid, attentions));
  KVANT_TRY(FillLayersWithExperts(
      metadata, stack, kNorms, attentions,
      {.gating = graph::Gating::kSigmoid, .normalize = true, .shared = SharedExpert::kPlain}));
  stack.input.scale = std::sqrt(static_cast<float>(stack.dim));
  return model;
}

constexpr std::string_view kClasses[] = {"AfmoeForCausalLM"};

constexpr auto kTensors = Join(
    kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms,
    HfGate("model.layers.{}.self_attn.gate_proj.weight"), kHfAttentionOutput,
    HfNorm("model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"),
    HfNorm("model.layers.{}.pre_mlp_layernorm.weight", "blk.{}.ffn_norm.weight"),
    WithoutExperts(Join(kHfSeparateGateUp, kHfDown)),
    std::array{HfOfExperts("model.layers.{}.mlp.router.gate.weight", kRouterName, Extent::kExperts,
                           Extent::kDim),
               HfOfExperts("model.layers.{}.mlp.expert_bias", "blk.{}.exp_probs_b.bias",
                           Extent::kExperts, Extent::kNone)},
    kHfEachExpert, kHfSharedExperts,
    HfNorm("model.layers.{}.post_mlp_layernorm.weight", "blk.{}.post_ffw_norm.weight"));

// Readers of the format assume the scale of the embedding and the router of the released models.
Status CheckSettings(const JsonObject& config) {
  KVANT_ASSIGN(const auto scaled, config.Bool("mup_enabled"));
  if (!scaled.value_or(false)) return config.Wrong("mup_enabled", "true");
  KVANT_ASSIGN(const auto score, config.String("score_func"));
  if (score.value_or("sigmoid") != "sigmoid") return config.Wrong("score_func", "sigmoid");
  KVANT_ASSIGN(const auto normalized, config.Bool("route_norm"));
  if (!normalized.value_or(true)) return config.Wrong("route_norm", "true");
  KVANT_ASSIGN(const auto groups, config.Integer("n_group", kExpertsMax));
  if (groups.value_or(1) > 1) return config.Wrong("n_group", "1");
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(CheckSettings(config));
  KVANT_ASSIGN(const auto every, config.Integer("global_attn_every_n_layers", kLayersMax));
  KVANT_ASSIGN(
      const auto windows,
      ReadWindowLayers(config, shape.layers, std::max<int64_t>(1, every.value_or(kPattern))));
  KVANT_TRY(AddWindowFlags(config, windows, out));
  KVANT_ASSIGN(const auto dense, config.Integer("num_dense_layers", kLayersMax));
  AddSigmoidGating(dense.value_or(1), out);
  out.writer->AddBool(out.Key("expert_weights_norm"), true);
  KVANT_ASSIGN(const auto scale, config.Number("route_scale"));
  if (scale.value_or(1) != 1) {
    KVANT_TRY(AddPositive(config, "route_scale", "expert_weights_scale", out));
  }
  return RefuseRopeScaling(config);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts", .shared_count = "num_shared_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Trinity", .read = Read, .hf = kHf};

}  // namespace kvant::arch::afmoe
