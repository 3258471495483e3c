// Qwen 1.5 and 2, the models with experts: the layer of Qwen 2 with a mixture of experts in place
// of the feed-forward, and with a shared expert that has a gate of its own.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::qwen2moe {
namespace {

constexpr std::string_view kName = "qwen2moe";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_TRY(
      FillLayersWithExperts(metadata, stack, {}, attentions, {.shared = SharedExpert::kGated}));
  return model;
}

constexpr std::string_view kClasses[] = {"Qwen2MoeForCausalLM"};

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput, kHfNormBeforeFfn,
         WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts, kHfGatedSharedExpert);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseTrue(config, "use_sliding_window"));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kAsTheyAre, ExpertWeights::kAsTheyAre, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts", .shared_ffn = "shared_expert_intermediate_size"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName,
                        .models = "Qwen 1.5 MoE and 2 MoE",
                        .read = Read,
                        .hf = kHf,
                        .mix = {.small_values = SmallValues::kAlways}};

}  // namespace kvant::arch::qwen2moe
