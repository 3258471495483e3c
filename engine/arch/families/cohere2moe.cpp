// North Mini Code and Command A+: Command R7B's layer with experts, whose sum is averaged with a
// shared expert's. The first layers have no experts, and are rotated, too, where they have no
// window.
#include <algorithm>
#include <variant>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::cohere2moe {
namespace {

constexpr std::string_view kName = "cohere2moe";
constexpr uint32_t kPattern = 4;  // every fourth layer sees all positions, the first one included
constexpr const char* kRmsKey = "attention.layer_norm_rms_epsilon";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(const auto rms, metadata.file().GetF32(metadata.Key(kRmsKey)));
  const NormKind norms = rms.value_or(0) > 0 ? NormKind::kRms : NormKind::kLayer;
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, norms, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_ASSIGN(const auto windows,
               ReadWindowPattern(metadata, attentions.size(), kPattern, FullLayer::kFirst));
  KVANT_TRY(KeepWindows(metadata, windows, attentions));
  KVANT_ASSIGN(const int64_t dense, metadata.CountOr("leading_dense_block_count", kLayersMax, 0));
  std::vector<bool> rotated = windows;
  for (size_t i = 0; i < std::min(rotated.size(), static_cast<size_t>(dense)); ++i) {
    rotated[i] = true;
  }
  for (size_t i = 0; i < stack.predictors.count; ++i) rotated[rotated.size() - 1 - i] = true;
  RotateOnly(rotated, attentions);
  KVANT_TRY(
      FillLayersWithExperts(metadata, stack, {.before_ffn = "attn_norm"}, attentions,
                            {.gating = graph::Gating::kSigmoid, .shared = SharedExpert::kPlain}));
  for (LayerSpec& layer : stack.layers) {
    layer.flow = Flow::kParallel;
    Sublayer& ffn = layer.sublayers.back();
    const auto* experts = std::get_if<Experts>(&ffn.block);
    const bool averaged = experts != nullptr && experts->shared != SharedExpert::kNone;
    if (averaged) ffn.residual_scale = 0.5f;
  }
  KVANT_ASSIGN(stack.output.scale, metadata.Positive("logit_scale"));
  return model;
}

constexpr std::string_view kClasses[] = {"Cohere2MoeForCausalLM"};

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
         WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts, kHfSharedExperts);

// The feed-forwards of layers without experts may have a width of their own.
Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto wide, config.Integer("prefix_dense_intermediate_size", kDimMax));
  if (wide.value_or(0) > 0) shape.ffn = *wide;
  return {};
}

Status AddRouter(const JsonObject& config, Parameters& out) {
  constexpr uint32_t kSoftmax = 1;  // as expert_gating_func numbers them
  constexpr uint32_t kSigmoid = 2;
  KVANT_ASSIGN(const auto function, config.String("expert_selection_fn"));
  const std::string chosen = function.value_or("softmax");
  if (chosen != "softmax" && chosen != "sigmoid") {
    return config.Wrong("expert_selection_fn", "softmax or sigmoid");
  }
  // A softmax over the chosen experts is one over all of them with normalized weights.
  KVANT_ASSIGN(const auto normalized, config.Bool("norm_topk_prob"));
  out.writer->AddU32(out.Key("expert_gating_func"), chosen == "softmax" ? kSoftmax : kSigmoid);
  out.writer->AddBool(out.Key("expert_weights_norm"),
                      chosen == "softmax" || normalized.value_or(true));
  KVANT_ASSIGN(const auto strategy, config.String("shared_expert_combination_strategy"));
  if (strategy.value_or("average") == "average") return {};
  return config.Wrong("shared_expert_combination_strategy", "average");
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddPositive(config, "logit_scale", "logit_scale", out));
  KVANT_ASSIGN(const auto windows, ReadWindowLayers(config, shape.layers, kPattern));
  KVANT_TRY(AddWindowFlags(config, windows, out));
  KVANT_ASSIGN(const auto first, config.Integer("first_k_dense_replace", kLayersMax));
  KVANT_ASSIGN(const int64_t dense, CountLeadingDense(config, shape.layers, first.value_or(0)));
  KVANT_ASSIGN(const auto pattern,
               config.Integer("prefix_dense_sliding_window_pattern", kLayersMax));
  if (dense > 0 && pattern.value_or(1) != 1) {
    return config.Wrong("prefix_dense_sliding_window_pattern", "1");
  }
  out.writer->AddU32(out.Key("leading_dense_block_count"), static_cast<uint32_t>(dense));
  KVANT_TRY(AddRouter(config, out));
  if (config.Find("rms_norm_eps") != nullptr) {
    KVANT_TRY(AddPositive(config, "rms_norm_eps", kRmsKey, out));
  }
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .epsilon = kLayerNormEpsilon,
    .finish_shape = FinishShape,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts",
                .ffn = "intermediate_size",
                .shared_count = "num_shared_experts"},
    .tied_unless_told = true,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {
    .name = kName, .models = "North Mini Code, Command A+", .read = Read, .hf = kHf};

}  // namespace kvant::arch::cohere2moe
