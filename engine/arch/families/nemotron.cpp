// Nemotron 3 and 4, Minitron: layer norms, whose weights transformers stores less one, a
// feed-forward without gates that squares its positive values, and a rotary embedding over a part
// of each head.
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

namespace kvant::arch::nemotron {

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, cpu::Activation::kReluSquared));
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

namespace {

constexpr std::string_view kName = "nemotron";

constexpr std::string_view kClasses[] = {"NemotronForCausalLM"};
constexpr std::string_view kActivations[] = {"relu2"};

constexpr auto kTensors = WithNormsPlusOne(
    Join(kHfEnds, kHfFinalNormBias, kHfNormBeforeAttention, kHfNormBeforeAttentionBias,
         kHfSeparateQkv, kHfAttentionOutput, kHfNormBeforeFfn, kHfNormBeforeFfnBias,
         std::array{HfMatrix("model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight",
                             Extent::kFfn, Extent::kDim),
                    HfBias("model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", Extent::kFfn)},
         kHfDown));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));
  return AddRopeScaling(config, shape, n_rot, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "hidden_act", .names = kActivations},
    .epsilon = {.key = "norm_eps", .gguf_key = "attention.layer_norm_epsilon"},
    .rope_share = 0.5,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Nemotron 4, Minitron", .read = Read, .hf = kHf};

}  // namespace kvant::arch::nemotron
