// Kimi Linear: Kimi delta attention, in every few layers latent attention that rotates nothing, and
// experts behind a sigmoid router whose choice has a bias of its own; the first layers have none.
#include <cmath>

#include "base/result.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_block_sparse.h"
#include "engine/arch/hf/hf_kda.h"
#include "engine/arch/hf/hf_latent.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/kda_mixers.h"

namespace kvant::arch::kimi_linear {
namespace {

constexpr std::string_view kName = "kimi-linear";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(const auto mixers, ReadKdaMixers(metadata, stack, {}, model.ropes));
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, mixers,
                                  {.gating = graph::Gating::kSigmoid,
                                   .normalize = true,
                                   .group_score = graph::GroupScore::kSumOfTopTwo,
                                   .shared = SharedExpert::kPlain}));
  return model;
}

constexpr std::string_view kClasses[] = {"KimiLinearForCausalLM"};

constexpr std::array<HfTensor, 14> kDelta = {
    HfKdaMatrix("model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"),
    HfKdaMatrix("model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"),
    HfKdaMatrix("model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"),
    HfKdaConv("model.layers.{}.self_attn.q_conv1d.weight", "blk.{}.ssm_conv1d_q.weight"),
    HfKdaConv("model.layers.{}.self_attn.k_conv1d.weight", "blk.{}.ssm_conv1d_k.weight"),
    HfKdaConv("model.layers.{}.self_attn.v_conv1d.weight", "blk.{}.ssm_conv1d_v.weight"),
    HfMatrix("model.layers.{}.self_attn.f_a_proj.weight", "blk.{}.ssm_f_a.weight",
             Extent::kDeltaHeadDim, Extent::kDim),
    HfMatrix("model.layers.{}.self_attn.f_b_proj.weight", "blk.{}.ssm_f_b.weight",
             Extent::kDeltaValues, Extent::kDeltaHeadDim),
    HfMatrix("model.layers.{}.self_attn.g_a_proj.weight", "blk.{}.ssm_g_a.weight",
             Extent::kDeltaHeadDim, Extent::kDim),
    HfMatrix("model.layers.{}.self_attn.g_b_proj.weight", "blk.{}.ssm_g_b.weight",
             Extent::kDeltaValues, Extent::kDeltaHeadDim),
    HfMatrix("model.layers.{}.self_attn.b_proj.weight", "blk.{}.ssm_beta.weight",
             Extent::kDeltaHeads, Extent::kDim),
    HfKdaRates("model.layers.{}.self_attn.A_log", Values::kMinusExp),
    HfNorm("model.layers.{}.self_attn.dt_bias", "blk.{}.ssm_dt.bias", Extent::kDeltaValues)[0],
    HfNorm("model.layers.{}.self_attn.o_norm.weight", "blk.{}.ssm_norm.weight",
           Extent::kDeltaHeadDim)[0],
};
constexpr std::array<HfTensor, 1> kDeltaOut = {
    HfMatrix("model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kDeltaValues),
};

// Folders that transformers writes name the feed-forwards of layers without experts like experts.
constexpr std::array<HfTensor, 3> kFfn = {
    HfMatrix("model.layers.{}.block_sparse_moe.gate_proj.weight", "blk.{}.ffn_gate.weight",
             Extent::kFfn, Extent::kDim),
    HfMatrix("model.layers.{}.block_sparse_moe.up_proj.weight", "blk.{}.ffn_up.weight",
             Extent::kFfn, Extent::kDim),
    HfMatrix("model.layers.{}.block_sparse_moe.down_proj.weight", "blk.{}.ffn_down.weight",
             Extent::kDim, Extent::kFfn),
};

constexpr std::array<HfTensor, 1> kSelectionBias = {
    HfOfExperts("model.layers.{}.block_sparse_moe.gate.e_score_correction_bias",
                "blk.{}.exp_probs_b.bias", Extent::kExperts, Extent::kNone)};

constexpr auto kExperts =
    Join(kHfBlockSparseRouter, kSelectionBias, kHfBlockSparseExperts, kHfBlockSparseSharedExpert);

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, InOtherLayers(Join(kDelta, kDeltaOut)),
         InAttentionLayers(Join(kHfLatentProjections, kHfLatentKvOfHeads)), kHfNormBeforeFfn,
         WithoutExperts(IfPresent(Join(kHfSeparateGateUp, kHfDown, kFfn))), kExperts);

// Published folders have an object with the sizes of the delta attention and the numbers, from 1,
// of the other layers; transformers writes both to keys of their own.
Status FinishShape(const JsonObject& config, HfShape& shape) {
  constexpr const char* kInner = "linear_attn_config";
  constexpr const char* kLayers = "full_attn_layers";
  KVANT_TRY(FinishLatentShape(config, shape));
  KVANT_ASSIGN(const auto inner, config.Object(kInner));
  HfKda kda;
  if (!inner.has_value()) {
    KVANT_TRY(ReadAttentionLayers(config, {.other = "linear_attention"}, 0, shape));
    KVANT_ASSIGN(kda.heads, config.Count("linear_num_heads", kHeadsMax));
    KVANT_ASSIGN(kda.head_dim, config.Count("linear_head_dim", kHeadDimMax));
    KVANT_ASSIGN(kda.taps, config.Count("linear_conv_kernel_dim", kConvTapsMax));
    return SetKda(config, kda, shape);
  }
  KVANT_ASSIGN(kda.heads, inner->Count("num_heads", kHeadsMax));
  KVANT_ASSIGN(kda.head_dim, inner->Count("head_dim", kHeadDimMax));
  KVANT_ASSIGN(kda.taps, inner->Count("short_conv_kernel_size", kConvTapsMax));
  KVANT_ASSIGN(const auto listed, inner->Numbers(kLayers));
  shape.attention_layers.assign(static_cast<size_t>(shape.layers), false);
  for (const float number : listed.value_or(std::vector<float>())) {
    if (!(number >= 1 && number <= static_cast<float>(shape.layers))) {
      return inner->Wrong(kLayers, fmt::format("numbers from 1 to {}", shape.layers));
    }
    shape.attention_layers[static_cast<size_t>(number) - 1] = true;
  }
  return SetKda(config, kda, shape);
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto unturned, config.Bool("mla_use_nope"));
  if (!unturned.value_or(true)) return config.Wrong("mla_use_nope", "true");
  KVANT_ASSIGN(const auto score, config.String("moe_router_activation_func"));
  if (score.value_or("sigmoid") != "sigmoid") {
    return config.Wrong("moe_router_activation_func", "sigmoid");
  }
  KVANT_TRY(RefuseTrue(config, "attention_bias"));
  KVANT_TRY(AddKdaSizes(config, shape, out));
  return AddKdaRouter(config, {.normalized = "moe_renormalize", .groups = "num_expert_group"}, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .keys = {.context = "model_max_length"},
    .finish_shape = FinishShape,
    .rope_base = 0,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts",
                .used = "num_experts_per_token",
                .shared_count = "num_shared_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Kimi Linear", .read = Read, .hf = kHf};

}  // namespace kvant::arch::kimi_linear
