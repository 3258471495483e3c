// Qwen 3, the models with experts: the layer of Qwen 3 with a mixture of experts in place of the
// feed-forward.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::qwen3moe {

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) attention.head_norms = HeadNorms::kRequired;
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions, {.normalize = true}));
  return model;
}

namespace {

constexpr std::string_view kName = "qwen3moe";

constexpr std::string_view kClasses[] = {"Qwen3MoeForCausalLM"};

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
         kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseTrue(config, "use_sliding_window"));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kAsTheyAre, ExpertWeights::kNormalized, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Qwen 3 MoE", .read = Read, .hf = kHf};

}  // namespace kvant::arch::qwen3moe
