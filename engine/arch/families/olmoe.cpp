// OLMoE: the Llama layer with norms of queries and keys over the whole projection, rotary embedding
// over halves, and experts whose weights are not normalized.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::olmoe {
namespace {

constexpr std::string_view kName = "olmoe";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) {
    attention.head_norms = HeadNorms::kRequired;
    attention.head_norm_weights = HeadNormWeights::kProjection;
  }
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions, {}));
  return model;
}

constexpr std::string_view kClasses[] = {"OlmoeForCausalLM"};

constexpr auto kTensors = Join(
    kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv,
    HfNorm("model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", Extent::kQRows),
    HfNorm("model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", Extent::kKvRows),
    kHfAttentionOutput, kHfNormBeforeFfn, kHfExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseNumber(config, "clip_qkv"));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kAsTheyAre, ExpertWeights::kAsTheyAre, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts", .ffn = "intermediate_size"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "OLMoE", .read = Read, .hf = kHf};

}  // namespace kvant::arch::olmoe
