// GPT-2: layer norms, a feed-forward without gates, biases everywhere, and learned positions
// instead of a rotary embedding. transformers stores the matrices of its layers transposed.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_gpt2_names.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hidden_activation.h"

namespace kvant::arch::gpt2 {

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_ASSIGN(const auto activation,
               ReadHiddenActivation(metadata, cpu::Activation::kGeluTanh, "hidden_activation"));
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, activation));
  stack.input.positions = "position_embd";
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

namespace {

constexpr std::string_view kName = "gpt2";

constexpr std::string_view kClasses[] = {"GPT2LMHeadModel"};

constexpr auto kTensors = Join(std::array{HfMatrix("transformer.wpe.weight", "position_embd.weight",
                                                   Extent::kContext, Extent::kDim)},
                               HfGpt2Names(RowOrder::kTransposed));

Status AddParameters(const JsonObject& config, const HfShape&, Parameters&) {
  return RefuseTrue(config, "scale_attn_by_inverse_layer_idx");
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kHfGpt2Activation,
    .keys = kHfGpt2Keys,
    .epsilon = kHfGpt2Epsilon,
    .finish_shape = ReadHfGpt2Width,
    .optional_prefix = "transformer.",
    .rope_base = 0,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "GPT-2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::gpt2
