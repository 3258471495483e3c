// ERNIE 4.5, the models with experts: the Llama layer with rotary embedding over neighbouring
// pairs, as transformers has it too; the choice of experts has a bias of its own, and a shared
// expert may stand beside them. Layers without experts may come first, and between others.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::ernie4_5_moe {
namespace {

constexpr std::string_view kName = "ernie4_5-moe";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.normalize = true, .shared = SharedExpert::kPlain}));
  return model;
}

constexpr std::string_view kClasses[] = {"Ernie4_5_MoeForCausalLM"};

constexpr double kRopeBase = 500000.0;

constexpr std::array<HfTensor, 1> kSelectionBias = {
    HfOfExperts("model.layers.{}.mlp.moe_statics.e_score_correction_bias",
                "blk.{}.exp_probs_b.bias", Extent::kOne, Extent::kExperts)};

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                               kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)),
                               kHfExperts, kSelectionBias, kHfSharedExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto step, config.Integer("moe_layer_interval", INT32_MAX));
  out.writer->AddU32(out.Key("interleave_moe_layer_step"), static_cast<uint32_t>(step.value_or(1)));
  KVANT_ASSIGN(const auto first, config.Integer("moe_layer_start_index", INT32_MAX));
  out.writer->AddU32(out.Key("leading_dense_block_count"),
                     static_cast<uint32_t>(first.value_or(1)));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_base = kRopeBase,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "moe_num_experts",
                .used = "moe_k",
                .shared_count = "moe_num_shared_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "ERNIE 4.5 MoE", .read = Read, .hf = kHf};

}  // namespace kvant::arch::ernie4_5_moe
