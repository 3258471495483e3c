// GLM 4.5 to 4.7, the models with experts: biases of q, k and v, norms of queries and keys where
// the file has them, rotary embedding over halves of the first half of a head, and experts behind a
// sigmoid router whose choice has a bias of its own; the first layers have none.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::glm4moe {
namespace {

constexpr std::string_view kName = "glm4moe";

// The norm before the feed-forward has the name that other families give to one after the
// attention.
constexpr LayerNorms kNorms = {.before_ffn = "post_attention_norm"};

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_TRY(FillLayersWithExperts(metadata, stack, kNorms, attentions,
                                  {.gating = graph::Gating::kSigmoid,
                                   .normalize = true,
                                   .group_score = graph::GroupScore::kSumOfTopTwo,
                                   .shared = SharedExpert::kPlain}));
  return model;
}

constexpr std::string_view kClasses[] = {"Glm4MoeForCausalLM"};

constexpr auto kNormBeforeFfn =
    HfNorm("model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight");

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, IfPresent(kHfHeadNorms),
         kHfAttentionOutput, kNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)),
         kHfExperts, kHfSelectionBias, kHfSharedExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));
  KVANT_TRY(AddSigmoidRouter(config, out));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kNormalized, out));
  return AddRopeScaling(config, shape, n_rot, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_share = 0.5,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "n_routed_experts", .shared_count = "n_shared_experts"},
    .keeps_predictors = true,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "GLM 4.5 to 4.7 MoE", .read = Read, .hf = kHf};

}  // namespace kvant::arch::glm4moe
