// Granite 3, the models with experts: the layer of Granite with experts, whose weights are a
// softmax over the chosen experts, and with a shared expert in some models.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::granitemoe {
namespace {

constexpr std::string_view kName = "granitemoe";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_TRY(FillLayersWithExperts(
      metadata, stack, {}, attentions,
      {.gating = graph::Gating::kSoftmaxOfChosen, .shared = SharedExpert::kPlain}));
  KVANT_TRY(ReadStreamScales(metadata, {}, stack));
  return model;
}

constexpr std::string_view kClasses[] = {"GraniteMoeForCausalLM"};
constexpr std::string_view kSharedClasses[] = {"GraniteMoeSharedForCausalLM"};

constexpr auto kTensors =
    WithPairsInterleaved(Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                              kHfNormBeforeFfn, kHfGraniteExperts));
constexpr auto kSharedTensors = Join(kTensors, kHfGraniteSharedExpert);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddMultipliers(config, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily RowFor(std::span<const std::string_view> classes,
                          std::span<const HfTensor> tensors, std::string_view shared_ffn) {
  return {.classes = classes,
          .arch = kName,
          .activation = kSiluActivation,
          .tensors = tensors,
          .add_parameters = AddParameters,
          .experts = {
              .count = "num_local_experts", .ffn = "intermediate_size", .shared_ffn = shared_ffn}};
}

constexpr HfFamily kHf[] = {
    RowFor(kClasses, kTensors, {}),
    RowFor(kSharedClasses, kSharedTensors, "shared_intermediate_size"),
};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Granite 3 MoE", .read = Read, .hf = kHf};

}  // namespace kvant::arch::granitemoe
