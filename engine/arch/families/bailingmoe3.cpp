// Ling 3: Kimi delta attention whose decays have a bound, in every few layers latent attention with
// a gate for each head, and experts behind a sigmoid router with groups, whose choice has a bias of
// its own; the first layers have none. The rope rotates neighbouring pairs of the last dimensions
// of a head.
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_kda.h"
#include "engine/arch/hf/hf_latent.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/kda_mixers.h"

namespace kvant::arch::bailingmoe3 {
namespace {

constexpr std::string_view kName = "bailingmoe3";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(const auto mixers, ReadKdaMixers(metadata, stack,
                                                {.decays = KdaDecays::kBounded,
                                                 .rope = cpu::RopeStyle::kInterleaved,
                                                 .gated = true},
                                                model.ropes));
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, mixers,
                                  {.gating = graph::Gating::kSigmoid,
                                   .normalize = true,
                                   .group_score = graph::GroupScore::kSumOfTopTwo,
                                   .shared = SharedExpert::kPlain,
                                   .limits = ExpertLimits::kAfterActivation}));
  return model;
}

// The published class, and the one that transformers has for its folders.
constexpr std::string_view kClasses[] = {"BailingMoeV3ForCausalLM"};
constexpr std::string_view kSavedClasses[] = {"BailingHybridForCausalLM"};

constexpr std::array<HfTensor, 12> kDelta = {
    HfKdaMatrix("model.layers.{}.attention.q_proj.weight", "blk.{}.attn_q.weight"),
    HfKdaMatrix("model.layers.{}.attention.k_proj.weight", "blk.{}.attn_k.weight"),
    HfKdaMatrix("model.layers.{}.attention.v_proj.weight", "blk.{}.attn_v.weight"),
    HfKdaConv("model.layers.{}.attention.q_conv1d.weight", "blk.{}.ssm_conv1d_q.weight"),
    HfKdaConv("model.layers.{}.attention.k_conv1d.weight", "blk.{}.ssm_conv1d_k.weight"),
    HfKdaConv("model.layers.{}.attention.v_conv1d.weight", "blk.{}.ssm_conv1d_v.weight"),
    HfKdaMatrix("model.layers.{}.attention.f_proj.weight", "blk.{}.ssm_f_a.weight"),
    HfKdaMatrix("model.layers.{}.attention.g_proj.weight", "blk.{}.ssm_g_a.weight"),
    HfMatrix("model.layers.{}.attention.b_proj.weight", "blk.{}.ssm_beta.weight",
             Extent::kDeltaHeads, Extent::kDim),
    HfKdaRates("model.layers.{}.attention.A_log", Values::kExp),
    HfNorm("model.layers.{}.attention.dt_bias", "blk.{}.ssm_dt.bias", Extent::kDeltaValues)[0],
    HfNorm("model.layers.{}.attention.o_norm.weight", "blk.{}.ssm_norm.weight",
           Extent::kDeltaHeadDim)[0],
};
// Folders that transformers writes have the name of the other layers.
constexpr std::array<HfTensor, 2> kDeltaOut = {
    HfMatrix("model.layers.{}.attention.o_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kDeltaValues),
    HfMatrix("model.layers.{}.attention.dense.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kDeltaValues),
};

constexpr std::array<HfTensor, 9> kLatent = {
    HfMatrix("model.layers.{}.attention.q_proj.weight", "blk.{}.attn_q.weight",
             Extent::kOneStepQRows, Extent::kDim),
    HfMatrix("model.layers.{}.attention.q_a_proj.weight", "blk.{}.attn_q_a.weight", Extent::kQRank,
             Extent::kDim),
    HfNorm("model.layers.{}.attention.q_a_layernorm.weight", "blk.{}.attn_q_a_norm.weight",
           Extent::kQRank)[0],
    HfMatrix("model.layers.{}.attention.q_b_proj.weight", "blk.{}.attn_q_b.weight",
             Extent::kLatentQRows, Extent::kQRank),
    HfMatrix("model.layers.{}.attention.kv_a_proj_with_mqa.weight", "blk.{}.attn_kv_a_mqa.weight",
             Extent::kLatentRow, Extent::kDim),
    HfNorm("model.layers.{}.attention.kv_a_layernorm.weight", "blk.{}.attn_kv_a_norm.weight",
           Extent::kLatent)[0],
    {.hf_name = "model.layers.{}.attention.kv_b_proj.weight",
     .gguf_name = "blk.{}.attn_k_b.weight",
     .rows = Extent::kLatent,
     .columns = Extent::kNope,
     .order = RowOrder::kLatentKeys},
    {.hf_name = "model.layers.{}.attention.kv_b_proj.weight",
     .gguf_name = "blk.{}.attn_v_b.weight",
     .rows = Extent::kVDim,
     .columns = Extent::kLatent,
     .order = RowOrder::kLatentValues},
    HfGate("model.layers.{}.attention.g_proj.weight", Extent::kHeads)[0],
};
constexpr std::array<HfTensor, 2> kLatentOut = {
    HfMatrix("model.layers.{}.attention.dense.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kLatentORows),
    HfMatrix("model.layers.{}.attention.o_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kLatentORows),
};

constexpr auto kTensors =
    Join(HfEmbedding("model.word_embeddings.weight"),
         HfNorm("model.norm.weight", "output_norm.weight"), HfOutput("lm_head.weight"),
         kHfNormBeforeAttention, InOtherLayers(Join(kDelta, IfPresent(kDeltaOut))),
         InAttentionLayers(Join(kLatent, IfPresent(kLatentOut))), kHfNormBeforeFfn,
         WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts,
         std::array{HfOfExperts("model.layers.{}.mlp.gate.expert_bias", "blk.{}.exp_probs_b.bias",
                                Extent::kExperts, Extent::kNone)},
         kHfSharedExperts);

// Where no list says which layers have latent attention, it is the last of every few layers, and
// those behind the last group of them.
Status ReadLayers(const JsonObject& config, HfShape& shape) {
  if (config.Find("layer_types") != nullptr) {
    return ReadAttentionLayers(config, {.other = "linear_attention"}, 0, shape);
  }
  KVANT_ASSIGN(const int64_t group, config.Count("layer_group_size", kLayersMax));
  const int64_t grouped = shape.layers / group * group;
  for (int64_t i = 0; i < shape.layers; ++i) {
    shape.attention_layers.push_back((i + 1) % group == 0 || i >= grouped);
  }
  return {};
}

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(FinishLatentShape(config, shape));
  KVANT_TRY(ReadLayers(config, shape));
  HfKda kda;
  KVANT_ASSIGN(const auto heads, config.Integer("linear_num_heads", kHeadsMax));
  kda.heads = heads.value_or(shape.heads);
  // transformers writes another number as head_dim.
  const bool named = config.Find("linear_head_dim") != nullptr;
  KVANT_ASSIGN(kda.head_dim, config.Count(named ? "linear_head_dim" : "head_dim", kHeadDimMax));
  KVANT_ASSIGN(kda.taps, config.Count("short_conv_kernel_size", kConvTapsMax));
  return SetKda(config, kda, shape);
}

// Settings of the published code that the GGUF architecture does not have.
Status CheckSettings(const JsonObject& config) {
  KVANT_ASSIGN(const auto safe, config.Bool("kda_safe_gate"));
  if (!safe.value_or(true)) return config.Wrong("kda_safe_gate", "true");
  KVANT_ASSIGN(const auto whole, config.Bool("no_kda_lora"));
  if (!whole.value_or(true)) return config.Wrong("no_kda_lora", "true");
  constexpr const char* kKind = "gated_attention_proj_granularity_type";
  KVANT_ASSIGN(const auto kind, config.String(kKind));
  if (kind.value_or("head_wise") != "head_wise") return config.Wrong(kKind, "head_wise");
  KVANT_ASSIGN(const auto score, config.String("score_function"));
  if (score.value_or("sigmoid") != "sigmoid") return config.Wrong("score_function", "sigmoid");
  return RefuseTrue(config, "attention_bias");
}

Status AddShared(const JsonObject& config, const HfShape& shape, const HfRouterKeys& router,
                 Parameters& out) {
  constexpr const char* kBound = "kda_lower_bound";
  KVANT_TRY(CheckSettings(config));
  KVANT_TRY(AddKdaSizes(config, shape, out));
  KVANT_TRY(AddKdaRouter(config, router, out));
  KVANT_ASSIGN(const auto bound, config.Number(kBound));
  if (!bound || !(*bound < 0)) return config.Wrong(kBound, "a number below 0");
  out.writer->AddBool(out.Key("kda.safe_gate"), true);
  out.writer->AddF32(out.Key("kda.gate_lower_bound"), static_cast<float>(*bound));
  KVANT_TRY(AddLayerBounds(config, "expert_swiglu_limit_list", kExpertLimitKey, shape.layers, out));
  KVANT_TRY(
      AddLayerBounds(config, "share_expert_swiglu_limit_list", kSharedLimitKey, shape.layers, out));
  return AddLatentRopeScaling(config, shape, out);
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  // Other engines need the number.
  KVANT_ASSIGN(const auto shared, config.Integer("num_shared_experts", kExpertsMax));
  out.writer->AddU32(out.Key("expert_shared_count"), static_cast<uint32_t>(shared.value_or(1)));
  return AddShared(config, shape, {.normalized = "norm_topk_prob", .groups = "n_group"}, out);
}

Status AddSavedParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  return AddShared(config, shape, {.normalized = "moe_renormalize", .groups = "num_expert_group"},
                   out);
}

constexpr HfFamily Published(std::span<const std::string_view> classes) {
  return {
      .classes = classes,
      .arch = kName,
      .activation = kSiluActivation,
      .finish_shape = FinishShape,
      .rope_base = 6e6,
      .rope_share = 1,
      .tensors = kTensors,
      .add_parameters = AddParameters,
      .experts = {.count = "num_experts", .shared_ffn = "moe_shared_expert_intermediate_size"},
  };
}

constexpr HfFamily Saved(std::span<const std::string_view> classes) {
  HfFamily row = Published(classes);
  row.keys.context = "model_max_length";
  row.add_parameters = AddSavedParameters;
  row.experts = {.count = "num_experts",
                 .used = "num_experts_per_token",
                 .shared_count = "num_shared_experts"};
  return row;
}

constexpr HfFamily kHf[] = {Published(kClasses), Saved(kSavedClasses)};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Ling 3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::bailingmoe3
