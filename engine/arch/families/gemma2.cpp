// Gemma 2: norms before and after both sublayers, GELU gates, a scaled embedding, caps on the
// scores of attention and on logits, and a window in every other layer, the first included.
// transformers stores the weights of norms less one.
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

namespace kvant::arch::gemma2 {
namespace {

constexpr std::string_view kName = "gemma2";

// Readers of the format assume the settings of the released models where a key is absent.
constexpr uint32_t kPattern = 2;  // every second layer sees all positions
constexpr int64_t kWindow = 4096;
constexpr float kScoreCap = 50.0f;
constexpr float kLogitCap = 30.0f;
constexpr size_t kLayers27b = 46;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kGeluTanh));
  KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
  KVANT_ASSIGN(const int64_t window,
               metadata.CountOr("attention.sliding_window", kContextMax, kWindow));
  KVANT_ASSIGN(const float score_cap, metadata.PositiveOr("attn_logit_softcapping", kScoreCap));
  KVANT_ASSIGN(stack.output.cap, metadata.PositiveOr("final_logit_softcapping", kLogitCap));
  stack.input.scale = std::sqrt(static_cast<float>(stack.dim));
  for (size_t i = 0; i < attentions.size(); ++i) {
    attentions[i].mask = windows[i] ? Mask{MaskKind::kWindow, window} : Mask{};
    attentions[i].score_cap = score_cap;
  }
  ScaleByWidth(metadata, kLayers27b, stack.dim, attentions);
  FillLayers(stack, {.after_attention = "post_attention_norm", .after_ffn = "post_ffw_norm"},
             attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"Gemma2ForCausalLM"};

constexpr auto kTensors =
    WithNormsPlusOne(Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                          kHfNormsBetweenSublayers, kHfSeparateGateUp, kHfDown, kHfNormAfterFfn));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseTrue(config, "use_bidirectional_attention"));
  if (config.Find("head_dim") == nullptr) return config.Wrong("head_dim", "a number");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    KVANT_TRY(AddPositive(config, key, key, out));
  }
  KVANT_TRY(AddAlternatingWindow(config, shape, kPattern, out));
  KVANT_TRY(AddQueryScale(config, shape, kLayers27b, out));
  return AddLinearScalingIfAny(config, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kGeluActivation,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Gemma 2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::gemma2
