// Ministral 3 and the text models of Mistral Small 3: the Llama layer, YaRN whose amplitude is
// divided by one of its own, and queries whose temperature grows with their position. transformers
// rotates pairs of half-heads, so the conversion interleaves the rows of q and k.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"
#include "engine/graph/attention/attention_nodes.h"

namespace kvant::arch::mistral3 {
namespace {

constexpr std::string_view kName = "mistral3";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_TRY(DivideYarnAmplitudes(metadata, model.ropes));
  KVANT_ASSIGN(const graph::QueryTemperature temperature,
               ReadTemperature(metadata, "rope.scaling.original_context_length"));
  for (Attention& attention : attentions) attention.temperature = temperature;
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"Ministral3ForCausalLM",
                                         "Mistral3ForConditionalGeneration"};
constexpr double kBase = 1e6;
constexpr std::string_view kBeta = "llama_4_scaling_beta";
constexpr std::string_view kRopeNames[] = {kBeta};

constexpr auto kTensors =
    WithPairsInterleaved(Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                              kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown));

// Queries get hotter from the end of YaRN's original context on.
Status AddTemperature(const JsonObject& config, Parameters& out) {
  KVANT_ASSIGN(const RopeSettings settings, RopeSettings::Read(config));
  if (!settings.Has(kBeta)) return {};
  KVANT_ASSIGN(const auto type, settings.Type());
  if (!settings.Has("original_max_position_embeddings") || type != "yarn") {
    return settings.Wrong(kBeta, "none without yarn and original_max_position_embeddings");
  }
  KVANT_ASSIGN(const double beta, settings.PositiveOr(kBeta, 0));
  out.writer->AddF32(out.Key(kTemperatureScaleKey), static_cast<float>(beta));
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  KVANT_TRY(AddWindowIfAny(config, out));
  KVANT_TRY(AddTemperature(config, out));
  return AddRopeScaling(config, shape, shape.head_dim, out, {.divides_by_all_dims = true});
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_base = kBase,
    .rope_names = kRopeNames,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName,
                        .models = "Ministral 3, Mistral Small 3",
                        .read = Read,
                        .hf = kHf,
                        .mix = {.small_values = SmallValues::kIfGrouped}};

}  // namespace kvant::arch::mistral3
