// Llama 1 to 3, Mistral, TinyLlama and everything that is stored as "llama": pre-norm RMS layers,
// SiLU gates, rotary embedding over neighbouring pairs. transformers turns pairs of half-heads, so
// the conversion interleaves the rows of q and k.
#include "base/result.h"
#include "cpu/kernels.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::llama {
namespace {

constexpr std::string_view kName = "llama";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"LlamaForCausalLM", "MistralForCausalLM"};
constexpr double kRopeBase = 10000.0;

constexpr auto kTensors =
    WithPairsInterleaved(Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                              kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  // Mistral's window; other engines ignore the key and attend to everything.
  KVANT_ASSIGN(const auto window, config.Integer("sliding_window", INT32_MAX));
  if (window.value_or(0) > 0) {
    out.writer->AddU32(out.Key("attention.sliding_window"), static_cast<uint32_t>(*window));
  }
  return AddRopeScaling(config, shape, shape.head_dim, kRopeBase, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_base = kRopeBase,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName,
                        .models = "Llama 1 to 3, Mistral, TinyLlama",
                        .read = Read,
                        .hf = kHf,
                        .mix = {.small_values = SmallValues::kIfGrouped}};

}  // namespace kvant::arch::llama
