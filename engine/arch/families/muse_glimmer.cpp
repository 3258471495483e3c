// Muse Glimmer: norms on both sides of both sublayers, those behind them with an epsilon of their
// own, a norm of the embedding without weights, norms of queries and keys, gates of the attention's
// result, a window in three of four layers, which alone have a rotary embedding, and a scale and a
// cap of the logits. transformers stores the weights of the layers' norms less one.
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::muse_glimmer {
namespace {

constexpr std::string_view kName = "muse-glimmer";
constexpr int64_t kPattern = 4;  // every fourth layer sees all positions
constexpr float kPostEpsilon = 1e-8f;
constexpr const char* kPostEpsilonKey = "post_norm_epsilon";

constexpr LayerNorms kNorms = {.after_attention = "post_attention_norm",
                               .after_ffn = "post_ffw_norm"};

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  for (Attention& attention : attentions) attention.head_norms = HeadNorms::kRequired;
  KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
  KVANT_TRY(KeepWindows(metadata, windows, attentions));
  KVANT_TRY(ReadWindowRopes(metadata, windows, attentions, model.ropes));
  RotateOnly(windows, attentions);
  KVANT_TRY(ReadResultGates(metadata, stack, cpu::Activation::kSigmoid, attentions));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, kNorms, attentions, ffns);
  KVANT_ASSIGN(const float epsilon, metadata.PositiveOr(kPostEpsilonKey, kPostEpsilon));
  for (LayerSpec& layer : stack.layers) {
    for (Sublayer& sublayer : layer.sublayers) sublayer.norm_after->epsilon = epsilon;
  }
  stack.input.norm = Norm{NormKind::kRms, "", stack.final_norm.epsilon};
  KVANT_ASSIGN(stack.output.scale, metadata.Positive("logit_scale"));
  KVANT_ASSIGN(stack.output.cap, metadata.PositiveOr("final_logit_softcapping", 0));
  return model;
}

constexpr std::string_view kClasses[] = {"MuseGlimmerForConditionalGeneration"};

constexpr auto kTensors = WithPairsInterleaved(
    Join(kHfEnds,
         WithNormsPlusOne(Join(kHfNormBeforeAttention, kHfNormsBetweenSublayers, kHfNormAfterFfn)),
         kHfSeparateQkv, HfGate("model.layers.{}.self_attn.gate_proj.weight"), kHfAttentionOutput,
         kHfSeparateGateUp, kHfDown));

// The class norms queries and keys without weights, then scales queries. Files have weights that do
// both.
Status AddHeadNorms(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto scale, config.Number("qk_scale_factor"));
  if (!scale || !(*scale > 0)) return config.Wrong("qk_scale_factor", "a positive number");
  const auto dims = static_cast<size_t>(shape.head_dim);
  for (int64_t i = 0; i < shape.layers; ++i) {
    out.tensors.push_back({fmt::format("blk.{}.attn_q_norm.weight", i),
                           std::vector<float>(dims, static_cast<float>(*scale))});
    out.tensors.push_back(
        {fmt::format("blk.{}.attn_k_norm.weight", i), std::vector<float>(dims, 1.0f)});
  }
  return {};
}

// Refuses a base by the layer that is not the same in all layers with a window, and 0 in others.
Status CheckBases(const JsonObject& config, const std::vector<bool>& windows, Parameters& out) {
  KVANT_ASSIGN(const auto bases, config.Numbers("layer_rope_theta"));
  KVANT_ASSIGN(const float base, ReadRopeBase(config, out.rope_base));
  for (size_t i = 0; bases && i < windows.size(); ++i) {
    const float expected = windows[i] ? base : 0.0f;
    if (i < bases->size() && (*bases)[i] == expected) continue;
    return config.Wrong("layer_rope_theta",
                        fmt::format("{} in layers with a window, 0 in others", base));
  }
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto windows, ReadWindowLayers(config, shape.layers, kPattern));
  KVANT_TRY(CheckBases(config, windows, out));
  KVANT_TRY(AddWindowFlags(config, windows, out));
  KVANT_TRY(AddPositive(config, "output_multiplier", "logit_scale", out));
  KVANT_TRY(AddPositive(config, "final_logit_softcapping", "final_logit_softcapping", out));
  KVANT_ASSIGN(const auto epsilon, config.Number("post_norm_eps"));
  if (epsilon && static_cast<float>(*epsilon) != kPostEpsilon) {
    KVANT_TRY(AddPositive(config, "post_norm_eps", kPostEpsilonKey, out));
  }
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  KVANT_TRY(AddHeadNorms(config, shape, out));
  return RefuseRopeScaling(config);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "hidden_activation", .names = kSiluNames},
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Muse Glimmer", .read = Read, .hf = kHf};

}  // namespace kvant::arch::muse_glimmer
