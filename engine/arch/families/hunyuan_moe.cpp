// Hunyuan, the models with experts: the layer of the dense models with experts in every layer,
// whose weights are normalized, and a shared one beside them.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"
#include "engine/graph/attention/attention_nodes.h"

namespace kvant::arch::hunyuan_moe {
namespace {

constexpr std::string_view kName = "hunyuan-moe";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) {
    attention.head_norms = HeadNorms::kRequired;
    attention.head_norm_order = graph::NormOrder::kAfterRope;
  }
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.normalize = true, .shared = SharedExpert::kPlain}));
  return model;
}

constexpr std::string_view kClasses[] = {"HunYuanMoEV1ForCausalLM"};

constexpr HfTensor Expert(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                          Extent columns) {
  return HfOfExperts(hf_name, gguf_name, rows, columns, ExpertForm::kEach);
}

constexpr std::array<HfTensor, 7> kExperts = {
    HfOfExperts("model.layers.{}.mlp.gate.wg.weight", kRouterName, Extent::kExperts, Extent::kDim),
    Expert("model.layers.{}.mlp.experts.{}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight",
           Extent::kExpertFfn, Extent::kDim),
    Expert("model.layers.{}.mlp.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight",
           Extent::kExpertFfn, Extent::kDim),
    Expert("model.layers.{}.mlp.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight",
           Extent::kDim, Extent::kExpertFfn),
    HfOfExperts("model.layers.{}.mlp.shared_mlp.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight",
                Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.shared_mlp.up_proj.weight", "blk.{}.ffn_up_shexp.weight",
                Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.shared_mlp.down_proj.weight", "blk.{}.ffn_down_shexp.weight",
                Extent::kDim, Extent::kSharedFfn),
};

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfQueryKeyNorms,
                               kHfAttentionOutput, kHfNormBeforeFfn, kExperts);

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .own_rope_base = true,
    .rope_names = kAlphaNames,
    .tensors = kTensors,
    .add_parameters = AddBaseWithAlpha,
    .experts = {.count = "num_experts",
                .used = "moe_topk",
                .ffn = "intermediate_size",
                .shared_ffn = "intermediate_size"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Hunyuan MoE", .read = Read, .hf = kHf};

}  // namespace kvant::arch::hunyuan_moe
