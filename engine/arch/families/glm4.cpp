// GLM 4 (0414): norms before and after both sublayers, biases of q, k and v, gate and up as one
// matrix, and a rotary embedding over neighbouring pairs of a half of each head. Files of GLM 4.1V
// have sections of pairs for images; their pairs are halves apart, and in a text all sections are
// one.
#include <cstring>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::glm4 {
namespace {

constexpr std::string_view kName = "glm4";

Result<cpu::RopeStyle> ReadRopeStyle(const Metadata& metadata) {
  KVANT_ASSIGN(
      const formats::GgufArray* sections,
      metadata.file().GetArray(metadata.Key("rope.dimension_sections"), formats::GgufType::kInt32));
  if (sections == nullptr || sections->count < 2) return cpu::RopeStyle::kInterleaved;
  int32_t first[2] = {};
  std::memcpy(first, sections->data, sizeof first);
  return first[0] > 0 && first[1] > 0 ? cpu::RopeStyle::kHalves : cpu::RopeStyle::kInterleaved;
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_ASSIGN(const cpu::RopeStyle style, ReadRopeStyle(metadata));
  KVANT_TRY(ReadRopes(metadata, style, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {.after_attention = "post_attention_norm", .after_ffn = "post_ffw_norm"},
             attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"Glm4ForCausalLM"};

constexpr auto kTensors = Join(
    kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
    HfNorm("model.layers.{}.post_self_attn_layernorm.weight", "blk.{}.post_attention_norm.weight"),
    kHfNormBeforeFfn, kHfFusedGateUp, kHfDown,
    HfNorm("model.layers.{}.post_mlp_layernorm.weight", "blk.{}.post_ffw_norm.weight"));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));
  return AddRopeScaling(config, shape, n_rot, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_share = 0.5,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "GLM 4", .read = Read, .hf = kHf};

}  // namespace kvant::arch::glm4
