// StarCoder 2: layer norms, a feed-forward without gates, and biases everywhere.
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

namespace kvant::arch::starcoder2 {

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, cpu::Activation::kGeluTanh));
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

namespace {

constexpr std::string_view kName = "starcoder2";

constexpr std::string_view kClasses[] = {"Starcoder2ForCausalLM"};
constexpr std::string_view kGeluTanhNames[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};

constexpr auto kTensors = Join(
    kHfEnds, kHfFinalNormBias, kHfNormBeforeAttention, kHfNormBeforeAttentionBias, kHfSeparateQkv,
    kHfAttentionOutput, kHfNormBeforeFfn, kHfNormBeforeFfnBias,
    std::array{HfMatrix("model.layers.{}.mlp.c_fc.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
                        Extent::kDim),
               HfBias("model.layers.{}.mlp.c_fc.bias", "blk.{}.ffn_up.bias", Extent::kFfn),
               HfMatrix("model.layers.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight", Extent::kDim,
                        Extent::kFfn),
               HfBias("model.layers.{}.mlp.c_proj.bias", "blk.{}.ffn_down.bias", Extent::kDim)});

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddWindowIfAny(config, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "hidden_act", .names = kGeluTanhNames},
    .epsilon = {.key = "norm_epsilon", .gguf_key = "attention.layer_norm_epsilon"},
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "StarCoder 2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::starcoder2
