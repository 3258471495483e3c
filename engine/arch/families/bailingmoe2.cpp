// Ling 2 and Ring 2: norms of queries and keys, a rotary embedding over halves of a share of each
// head, and experts behind a sigmoid router with groups, whose choice has a bias of its own; the
// first layers have none.
#include "base/result.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch::bailingmoe2 {
namespace {

constexpr std::string_view kName = "bailingmoe2";

constexpr std::string_view kClasses[] = {"BailingMoeV2ForCausalLM"};

constexpr auto kTensors = Join(
    HfEmbedding("model.word_embeddings.weight"), HfNorm("model.norm.weight", "output_norm.weight"),
    HfOutput("lm_head.weight"), kHfNormBeforeAttention,
    std::array{HfMatrix("model.layers.{}.attention.query_key_value.weight",
                        "blk.{}.attn_qkv.weight", Extent::kQkvRows, Extent::kDim),
               HfBias("model.layers.{}.attention.query_key_value.bias", "blk.{}.attn_qkv.bias",
                      Extent::kQkvRows)},
    HfNorm("model.layers.{}.attention.query_layernorm.weight", "blk.{}.attn_q_norm.weight",
           Extent::kHeadDim),
    HfNorm("model.layers.{}.attention.key_layernorm.weight", "blk.{}.attn_k_norm.weight",
           Extent::kHeadDim),
    std::array{
        HfMatrix("model.layers.{}.attention.dense.weight", "blk.{}.attn_output.weight",
                 Extent::kDim, Extent::kQRows),
        HfBias("model.layers.{}.attention.dense.bias", "blk.{}.attn_output.bias", Extent::kDim)},
    kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts,
    IfPresent(std::array{HfOfExperts("model.layers.{}.mlp.gate.expert_bias",
                                     "blk.{}.exp_probs_b.bias", Extent::kExperts, Extent::kNone)}),
    kHfSharedExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto score, config.String("score_function"));
  if (score.value_or("sigmoid") != "sigmoid") return config.Wrong("score_function", "sigmoid");
  KVANT_ASSIGN(const auto normed, config.Bool("use_qk_norm"));
  if (!normed.value_or(true)) return config.Wrong("use_qk_norm", "true");
  KVANT_ASSIGN(const auto dense, config.Integer("first_k_dense_replace", kLayersMax));
  AddSigmoidGating(dense.value_or(0), out);
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kNormalized, out));
  KVANT_TRY(AddExpertGroups(config, out));
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));
  return AddRopeScaling(config, shape, n_rot, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_share = 0.5,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts", .shared_count = "num_shared_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Ling 2, Ring 2", .read = dots1::Read, .hf = kHf};

}  // namespace kvant::arch::bailingmoe2
