// Gemma 1: the Llama layer with GELU gates, a scaled embedding, and heads whose size the dimension
// does not give. transformers stores the weights of norms less one.
#include <cmath>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::gemma {
namespace {

constexpr std::string_view kName = "gemma";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kGeluTanh));
  stack.input.scale = std::sqrt(static_cast<float>(stack.dim));
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"GemmaForCausalLM"};

// The released models say "gelu" and mean its tanh form.
constexpr std::string_view kActivations[] = {"gelu_pytorch_tanh", "gelu"};

constexpr auto kTensors =
    WithNormsPlusOne(Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                          kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown));

Status AddParameters(const JsonObject& config, const HfShape&, Parameters& out) {
  if (config.Find("head_dim") == nullptr) return config.Wrong("head_dim", "a number");
  return AddLinearScalingIfAny(config, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "hidden_act", .names = kActivations},
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Gemma 1", .read = Read, .hf = kHf};

}  // namespace kvant::arch::gemma
