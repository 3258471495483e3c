// Orion: the Llama layer with norms that subtract the mean, and rotary embedding over halves.
// config.json calls their epsilon that of RMS norms.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::orion {
namespace {

constexpr std::string_view kName = "orion";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"OrionForCausalLM"};

constexpr auto kTensors = Join(kHfEnds, kHfFinalNormBias, kHfNormBeforeAttention,
                               kHfNormBeforeAttentionBias, kHfSeparateQkv, kHfAttentionOutput,
                               kHfNormBeforeFfn, kHfNormBeforeFfnBias, kHfSeparateGateUp, kHfDown);

// Models for long texts say their context under another key.
Status FinishShape(const JsonObject& config, HfShape& shape) {
  const bool told = config.Find("max_sequence_length") != nullptr;
  KVANT_ASSIGN(shape.context,
               config.Count(told ? "max_sequence_length" : "max_position_embeddings", kContextMax));
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .keys = {.context = ""},
    .epsilon = {.key = "rms_norm_eps", .gguf_key = "attention.layer_norm_epsilon"},
    .finish_shape = FinishShape,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Orion", .read = Read, .hf = kHf};

}  // namespace kvant::arch::orion
