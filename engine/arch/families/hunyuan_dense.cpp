// Hunyuan, the dense models: the Llama layer with rotary embedding over halves, and norms of
// queries and keys after it. The base of the embedding follows from a factor in config.json.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"
#include "engine/graph/attention/attention_nodes.h"

namespace kvant::arch::hunyuan_dense {

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  for (Attention& attention : attentions) {
    attention.head_norms = HeadNorms::kRequired;
    attention.head_norm_order = graph::NormOrder::kAfterRope;
  }
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

namespace {

constexpr std::string_view kName = "hunyuan-dense";

constexpr std::string_view kClasses[] = {"HunYuanDenseV1ForCausalLM"};

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfQueryKeyNorms,
                               kHfAttentionOutput, kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .own_rope_base = true,
    .rope_names = kAlphaNames,
    .tensors = kTensors,
    .add_parameters = AddBaseWithAlpha,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Hunyuan (dense)", .read = Read, .hf = kHf};

}  // namespace kvant::arch::hunyuan_dense
