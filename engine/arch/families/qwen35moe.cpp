// Qwen 3.5 and 3.6, the models with experts: the mixers of the dense ones, and experts with a
// shared one in each layer.
#include "base/result.h"
#include "engine/arch/decoder.h"
#include "engine/arch/delta_mixers.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
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

// Published folders have all experts, gate and up in one tensor; those that transformers writes
// have a tensor for each expert.
constexpr std::array<HfTensor, 3> kStackedExperts = {
    HfOfExperts("model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kStacked, RowPart::kFirstHalf),
    HfOfExperts("model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_up_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kStacked, RowPart::kSecondHalf),
    HfOfExperts("model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight",
                Extent::kDim, Extent::kExpertFfn, ExpertForm::kStacked),
};
constexpr auto kExperts =
    Join(std::array{kHfExperts[0]},
         IfPresent(Join(std::array{kHfExperts[1], kHfExperts[2], kHfExperts[3]}, kStackedExperts)));

constexpr auto kTensors = Join(kHfAroundDelta, InOtherLayers(Join(kHfTiledDelta, kHfDeltaNorm)),
                               kExperts, kHfGatedSharedExpert);

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
