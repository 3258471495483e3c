// Laguna: norms of queries and keys, gates of the attention's result that are a softplus, for each
// head or for each value, layers of different numbers of heads, and experts behind a sigmoid router
// whose choice has a bias of its own. Layers with a window have a rope of their own.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::laguna {
namespace {

constexpr std::string_view kName = "laguna";
constexpr uint32_t kPattern = 4;  // every fourth layer sees all positions, the first one included

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) attention.head_norms = HeadNorms::kRequired;
  KVANT_ASSIGN(const int64_t window, metadata.CountOr("attention.sliding_window", kContextMax, 0));
  if (window > 0) {
    KVANT_ASSIGN(const auto windows,
                 ReadWindowPattern(metadata, attentions.size(), kPattern, FullLayer::kFirst));
    KVANT_TRY(KeepWindows(metadata, windows, attentions));
    KVANT_TRY(ReadWindowRopes(metadata, windows, attentions, model.ropes));
  }
  KVANT_TRY(ReadResultGates(metadata, stack, cpu::Activation::kSoftplus, attentions));
  KVANT_TRY(FillLayersWithExperts(
      metadata, stack, {}, attentions,
      {.gating = graph::Gating::kSigmoid, .normalize = true, .shared = SharedExpert::kPlain}));
  return model;
}

constexpr std::string_view kClasses[] = {"LagunaForCausalLM"};
constexpr double kBase = 500000.0;
constexpr double kWindowBase = 10000.0;

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms,
         HfGate("model.layers.{}.self_attn.g_proj.weight"), kHfAttentionOutput, kHfNormBeforeFfn,
         WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts,
         std::array{HfOfExperts("model.layers.{}.mlp.experts.e_score_correction_bias",
                                "blk.{}.exp_probs_b.bias", Extent::kExperts, Extent::kNone)},
         kHfSharedExpert);

// Reads whether gates are for heads, and the numbers of heads of the layers.
Status FinishShape(const JsonObject& config, HfShape& shape) {
  const formats::Json* gating = config.Find("gating");
  const bool of_heads = gating == nullptr || *gating == true || *gating == "per-head";
  if (!of_heads && *gating != "per-element") {
    return config.Wrong("gating", "true, per-head or per-element");
  }
  shape.gate_per_head = of_heads;
  if (config.Find("gating_types") != nullptr) {
    return MakeError(ErrorCode::kNotSupported, "{}: gates by the layer are not supported",
                     config.Where("gating_types"));
  }
  KVANT_ASSIGN(const auto heads, config.Numbers("num_attention_heads_per_layer"));
  if (!heads) return {};
  KVANT_ASSIGN(const int64_t head_dim, config.Count("head_dim", kHeadDimMax));
  if (std::ssize(*heads) != shape.layers) {
    return config.Wrong("num_attention_heads_per_layer",
                        fmt::format("an array of {} numbers", shape.layers));
  }
  for (const float count : *heads) {
    const auto whole = static_cast<int64_t>(count);
    if (!(count >= 1 && count <= float{kHeadsMax}) || whole % shape.kv_heads != 0) {
      return config.Wrong("num_attention_heads_per_layer",
                          fmt::format("multiples of {}", shape.kv_heads));
    }
    shape.layer_sizes.push_back(
        {.head_dim = head_dim, .kv_heads = shape.kv_heads, .ffn = shape.ffn, .heads = whole});
  }
  return {};
}

Status AddWindows(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto windows, ReadWindowLayers(config, shape.layers, 1));
  if (std::ranges::none_of(windows, [](bool window) { return window; })) return {};
  KVANT_TRY(AddWindowFlags(config, windows, out));
  return AddWindowRope(config, shape, {.base = kWindowBase}, out);
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseTrue(config, "moe_apply_router_weight_on_input"));
  KVANT_ASSIGN(const auto cap, config.Number("moe_router_logit_softcapping"));
  if (cap.value_or(0) != 0) return config.Wrong("moe_router_logit_softcapping", "0");
  if (config.Find("head_dim") == nullptr) return config.Wrong("head_dim", "a number");
  AddHeadDim(shape, out);
  KVANT_TRY(AddWindows(config, shape, out));
  KVANT_ASSIGN(const int64_t dense, CountLeadingDense(config, shape.layers, 1));
  AddSigmoidGating(dense, out);
  out.writer->AddBool(out.Key("expert_weights_norm"), true);
  KVANT_ASSIGN(const auto scale, config.Number("moe_routed_scaling_factor"));
  if (scale.value_or(1) != 1) {
    KVANT_TRY(AddPositive(config, "moe_routed_scaling_factor", "expert_weights_scale", out));
  }
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));
  return AddRopeScaling(config, shape, n_rot, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .finish_shape = FinishShape,
    .rope_base = kBase,
    .rope_share = 0.5,
    .window_ropes = true,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts", .shared_ffn = "shared_expert_intermediate_size"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Laguna", .read = Read, .hf = kHf};

}  // namespace kvant::arch::laguna
