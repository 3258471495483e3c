#include "engine/arch/single_mixers.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"

namespace kvant::arch {
namespace {

constexpr cpu::Activation kActivation = cpu::Activation::kReluSquared;
constexpr ExpertTraits kExperts = {.gating = graph::Gating::kSigmoid,
                                   .group_score = graph::GroupScore::kSumOfTopTwo,
                                   .shared = SharedExpert::kPlain,
                                   .activation = kActivation,
                                   .kind = ExpertKind::kPlain};

// A layer that predicts further tokens has an attention and then experts, and a layer norm behind.
Status AddPredictor(const Metadata& metadata, const std::optional<Attention>& attention,
                    const std::optional<Experts>& experts, Stack& stack, size_t layer) {
  if (!attention.has_value() || !experts.has_value()) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: layer {}: expected kv heads and experts, since it predicts further "
                     "tokens",
                     metadata.file().path(), layer);
  }
  const float epsilon = stack.final_norm.epsilon;
  stack.layers[layer].sublayers = {
      {Norm{NormKind::kRms, "attn_norm", epsilon}, *attention},
      {Norm{NormKind::kRms, "post_attention_norm", epsilon}, *experts}};
  KVANT_ASSIGN(const float of_head, metadata.PositiveOr("attention.layer_norm_epsilon", epsilon));
  stack.predictors.head_norm = Norm{NormKind::kLayer, "", of_head};
  return {};
}

}  // namespace

Result<ModelSpec> ReadSingleMixers(const Metadata& metadata, MayHaveExperts may_have_experts) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, may_have_experts));
  Stack& stack = model.stacks.front();
  const float epsilon = stack.final_norm.epsilon;
  const size_t layers = stack.layers.size();
  KVANT_ASSIGN(const auto attentions, ReadSomeAttentions(metadata, stack));
  KVANT_ASSIGN(const auto widths,
               metadata.CountOrNonePerLayer("feed_forward_length", layers, kDimMax));
  KVANT_ASSIGN(const Mamba2 mamba, ReadMamba2(metadata, epsilon));
  std::vector<std::optional<Experts>> experts(layers);
  if (may_have_experts == MayHaveExperts::kYes) {
    KVANT_ASSIGN(experts, ReadExperts(metadata, stack, kExperts));
  }
  const bool any_experts = std::ranges::any_of(
      experts, [](const std::optional<Experts>& layer) { return layer.has_value(); });
  for (size_t i = 0; i < layers; ++i) {
    if (i + stack.predictors.count >= layers) {
      KVANT_TRY(AddPredictor(metadata, attentions[i], experts[i], stack, i));
      continue;
    }
    const std::string prefix = fmt::format("{}.{}.", stack.layer_prefix, i);
    const bool lacks_ffn = metadata.file().FindTensor(prefix + "ffn_up.weight") == nullptr;
    if (any_experts && !experts[i].has_value() && widths[i] > 0 && lacks_ffn) {
      return MakeError(ErrorCode::kCorrupt, "{}: tensor {}ffn_gate_inp.weight is missing",
                       metadata.file().path(), prefix);
    }
    if (attentions[i].has_value() && widths[i] > 0) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: layer {}: expected kv heads or a feed-forward, found both",
                       metadata.file().path(), i);
    }
    Block block = mamba;
    if (attentions[i].has_value()) {
      block = *attentions[i];
    } else if (experts[i].has_value()) {
      block = *experts[i];
    } else if (widths[i] > 0) {
      block = PlainFfn{widths[i], kActivation};
    }
    stack.layers[i].sublayers = {{Norm{NormKind::kRms, "attn_norm", epsilon}, block}};
  }
  return model;
}

}  // namespace kvant::arch
