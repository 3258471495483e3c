// OLMo 1: the Llama layer with layer norms that have no weights, and with queries, keys and values
// kept within a bound. transformers rotates pairs of half-heads, so the conversion interleaves the
// rows of q and k.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::olmo {
namespace {

constexpr std::string_view kName = "olmo";
constexpr double kEpsilon = 1e-5;  // of the model's definition; config.json does not say it

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  KVANT_ASSIGN(const float clamp, metadata.PositiveOr("attention.clamp_kqv", 0));
  for (Attention& attention : attentions) attention.clamp = clamp;
  FillLayers(stack, {}, attentions, ffns);
  for (LayerSpec& layer : stack.layers) {
    for (Sublayer& sublayer : layer.sublayers) sublayer.norm_before->tensor = {};
  }
  stack.final_norm.tensor = {};
  return model;
}

constexpr std::string_view kClasses[] = {"OlmoForCausalLM"};

constexpr auto kTensors =
    WithPairsInterleaved(Join(HfEmbedding("model.embed_tokens.weight"), HfOutput("lm_head.weight"),
                              kHfSeparateQkv, kHfAttentionOutput, kHfSeparateGateUp, kHfDown));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  if (config.Find("clip_qkv") != nullptr) {
    KVANT_TRY(AddPositive(config, "clip_qkv", "attention.clamp_kqv", out));
  }
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .epsilon = {.key = "layer_norm_eps",
                .gguf_key = "attention.layer_norm_epsilon",
                .otherwise = kEpsilon},
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName,
                        .models = "OLMo 1",
                        .read = Read,
                        .hf = kHf,
                        .mix = {.small_values = SmallValues::kAlways}};

}  // namespace kvant::arch::olmo
