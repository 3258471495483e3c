// Granite 3, the dense models: the Llama layer with a factor each on the embedding, on what
// sublayers add, on the scores of attention and on logits. transformers turns pairs of half-heads,
// so the conversion interleaves the rows of q and k.
#include "base/result.h"
#include "cpu/kernels.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::granite {
namespace {

constexpr std::string_view kName = "granite";
constexpr double kRopeBase = 10000.0;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {}, attentions, ffns);
  KVANT_ASSIGN(stack.input.scale, metadata.PositiveOr("embedding_scale", 1));
  KVANT_ASSIGN(const float residual_scale, metadata.PositiveOr("residual_scale", 1));
  for (LayerSpec& layer : stack.layers) {
    for (Sublayer& sublayer : layer.sublayers) sublayer.residual_scale = residual_scale;
  }
  KVANT_ASSIGN(const float divisor, metadata.PositiveOr("logit_scale", 1));
  stack.output.scale = 1.0f / divisor;
  return model;
}

constexpr std::string_view kClasses[] = {"GraniteForCausalLM"};

constexpr auto kTensors =
    WithPairsInterleaved(Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                              kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddPositive(config, "embedding_multiplier", "embedding_scale", out));
  KVANT_TRY(AddPositive(config, "residual_multiplier", "residual_scale", out));
  KVANT_TRY(AddPositive(config, "attention_multiplier", "attention.scale", out));
  KVANT_TRY(AddPositive(config, "logits_scaling", "logit_scale", out));
  return AddRopeScaling(config, shape, shape.head_dim, kRopeBase, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Granite 3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::granite
