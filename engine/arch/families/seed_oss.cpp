// Seed-OSS: the Llama layer with biases of q, k and v and rotary embedding over halves. Files call
// the norm before the feed-forward by the name of one after the attention.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::seed_oss {
namespace {

constexpr std::string_view kName = "seed_oss";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {.before_ffn = "post_attention_norm"}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"SeedOssForCausalLM"};

constexpr auto kTensors = Join(
    kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
    HfNorm("model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"),
    kHfSeparateGateUp, kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  return AddRopeScaling(config, shape, shape.head_dim, out);
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
const Family kFamily = {.name = kName, .models = "Seed-OSS", .read = Read, .hf = kHf};

}  // namespace kvant::arch::seed_oss
