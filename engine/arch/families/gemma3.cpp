// Gemma 3, the text models: norms of queries and keys, norms before and after both sublayers, GELU
// gates, a scaled embedding, and five layers with a window and their own rotary base for each layer
// that sees everything. transformers stores the weights of norms less one.
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

namespace kvant::arch::gemma3 {
namespace {

constexpr std::string_view kName = "gemma3";

// Readers of the format assume these settings; the keys are written only where a model differs.
constexpr uint32_t kPattern = 6;  // every sixth layer sees all positions
constexpr float kLocalBase = 10000.0f;
constexpr size_t kLayers27b = 62;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kGeluTanh));
  KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
  KVANT_ASSIGN(const float local_base, metadata.PositiveOr("rope.freq_base_swa", kLocalBase));
  for (size_t i = 0; i < attentions.size(); ++i) {
    if (!windows[i]) attentions[i].mask = {};
    attentions[i].head_norms = HeadNorms::kRequired;
  }
  ScaleByWidth(metadata, kLayers27b, stack.dim, attentions);
  GiveLayersTheBase(local_base, windows, attentions, model.ropes);
  KVANT_ASSIGN(stack.output.cap, metadata.PositiveOr("final_logit_softcapping", 0));
  stack.input.scale = std::sqrt(static_cast<float>(stack.dim));
  FillLayers(stack, {.after_attention = "post_attention_norm", .after_ffn = "post_ffw_norm"},
             attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"Gemma3ForCausalLM"};

constexpr auto kTensors = WithNormsPlusOne(
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
         kHfNormsBetweenSublayers, kHfSeparateGateUp, kHfDown, kHfNormAfterFfn));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    KVANT_TRY(RefuseNumber(config, key));
  }
  KVANT_TRY(RefuseTrue(config, "use_bidirectional_attention"));
  if (config.Find("head_dim") == nullptr) return config.Wrong("head_dim", "a number");
  KVANT_TRY(AddAlternatingWindow(config, shape, kPattern, out));
  KVANT_TRY(AddQueryScale(config, shape, kLayers27b, out));
  KVANT_ASSIGN(const float local_base,
               ReadWindowRopeBase(config, "rope_local_base_freq", kLocalBase));
  if (local_base != kLocalBase) out.writer->AddF32(out.Key("rope.freq_base_swa"), local_base);
  return AddLinearScalingIfAny(config, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kGeluActivation,
    .rope_base = 1000000.0,
    .window_ropes = true,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Gemma 3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::gemma3
