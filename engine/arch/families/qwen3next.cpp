// Qwen3-Next: gated delta nets, every fourth layer attention whose result has gates, and experts
// with a shared one in each layer.
#include "base/result.h"
#include "engine/arch/decoder.h"
#include "engine/arch/delta_mixers.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch::qwen3next {
namespace {

constexpr std::string_view kName = "qwen3next";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(const auto mixers,
               ReadDeltaMixers(metadata, stack, ValueHeads::kGrouped, model.ropes));
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {.before_ffn = "post_attention_norm"}, mixers,
                                  {.normalize = true, .shared = SharedExpert::kGated}));
  return model;
}

constexpr std::string_view kClasses[] = {"Qwen3NextForCausalLM"};

constexpr auto kTensors =
    Join(kHfAroundDelta, InOtherLayers(Join(kHfDeltaGroups, kHfDeltaRest)),
         WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts, kHfGatedSharedExpert);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kNormalized, out));
  return AddDeltaParameters(config, shape, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .finish_shape = ReadDeltaLayers,
    .rope_share = kDeltaRopeShare,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts", .shared_ffn = "shared_expert_intermediate_size"},
    .keeps_predictors = true,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Qwen3-Next", .read = Read, .hf = kHf};

}  // namespace kvant::arch::qwen3next
