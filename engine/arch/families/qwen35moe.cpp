// Qwen 3.5 and 3.6, the models with experts: the mixers of the dense ones, and experts with a
// shared one in each layer.
#include "base/result.h"
#include "engine/arch/decoder.h"
#include "engine/arch/delta_mixers.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_stacked_experts.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch::qwen35moe {
namespace {

constexpr std::string_view kName = "qwen35moe";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(const auto mixers,
               ReadDeltaMixers(metadata, stack, ValueHeads::kTiled, model.ropes));
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {.before_ffn = "post_attention_norm"}, mixers,
                                  {.normalize = true, .shared = SharedExpert::kGated}));
  return model;
}

constexpr std::string_view kClasses[] = {"Qwen3_5MoeForCausalLM"};

constexpr auto kTensors = Join(kHfAroundDelta, InOtherLayers(Join(kHfTiledDelta, kHfDeltaNorm)),
                               kHfStackedOrEachExperts, kHfGatedSharedExpert);

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .keys = {.ffn = ""},
    .finish_shape = ReadDeltaLayers,
    .rope_share = kDeltaRopeShare,
    .tensors = kTensors,
    .add_parameters = AddSectionedDelta,
    .experts = {.count = "num_experts", .shared_ffn = "shared_expert_intermediate_size"},
    .keeps_predictors = true,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Qwen 3.5 and 3.6 MoE", .read = Read, .hf = kHf};

}  // namespace kvant::arch::qwen35moe
