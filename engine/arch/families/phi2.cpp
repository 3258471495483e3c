// Phi 1, 1.5 and 2: attention and a feed-forward without gates beside each other, which read one
// layer norm; biases everywhere, and a rotary embedding over a part of each head.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::phi2 {
namespace {

constexpr std::string_view kName = "phi2";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, cpu::Activation::kGeluTanh));
  FillLayers(stack, {.before_ffn = "attn_norm"}, attentions, ffns);
  for (LayerSpec& layer : stack.layers) layer.flow = Flow::kParallel;
  return model;
}

constexpr std::string_view kClasses[] = {"PhiForCausalLM"};
constexpr std::string_view kGeluTanhNames[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};

constexpr auto kTensors = Join(
    HfEmbedding("model.embed_tokens.weight"), HfOutput("lm_head.weight"),
    HfOptional("lm_head.bias", "output.bias", Extent::kVocab),
    HfNorm("model.final_layernorm.weight", "output_norm.weight"),
    HfOptional("model.final_layernorm.bias", "output_norm.bias", Extent::kDim),
    kHfNormBeforeAttention, kHfNormBeforeAttentionBias, kHfSeparateQkv,
    std::array{
        HfMatrix("model.layers.{}.self_attn.dense.weight", "blk.{}.attn_output.weight",
                 Extent::kDim, Extent::kQRows),
        HfBias("model.layers.{}.self_attn.dense.bias", "blk.{}.attn_output.bias", Extent::kDim),
        HfMatrix("model.layers.{}.mlp.fc1.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
                 Extent::kDim),
        HfBias("model.layers.{}.mlp.fc1.bias", "blk.{}.ffn_up.bias", Extent::kFfn),
        HfMatrix("model.layers.{}.mlp.fc2.weight", "blk.{}.ffn_down.weight", Extent::kDim,
                 Extent::kFfn),
        HfBias("model.layers.{}.mlp.fc2.bias", "blk.{}.ffn_down.bias", Extent::kDim)});

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseTrue(config, "qk_layernorm"));
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));
  return AddRopeScaling(config, shape, n_rot, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "hidden_act", .names = kGeluTanhNames},
    .epsilon = kLayerNormEpsilon,
    .rope_share = 0.5,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Phi 1, 1.5 and 2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::phi2
