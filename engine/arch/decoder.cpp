#include "engine/arch/decoder.h"

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace kvant::arch {
namespace {

std::string_view EpsilonKey(NormKind norms) {
  return norms == NormKind::kLayer ? "attention.layer_norm_epsilon"
                                   : "attention.layer_norm_rms_epsilon";
}

}  // namespace

Result<ModelSpec> ReadDecoder(const Metadata& metadata, NormKind norms,
                              MayHaveExperts may_have_experts) {
  KVANT_ASSIGN(const int64_t experts, metadata.CountOr("expert_count", kExpertsMax, 0));
  // One expert for all tokens is a feed-forward: files of Hunyuan's dense models say 1.
  if (experts > 1 && may_have_experts == MayHaveExperts::kNo) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: key {}: mixture of experts ({} experts) is not supported for this "
                     "architecture",
                     metadata.file().path(), metadata.Key("expert_count"), experts);
  }
  ModelSpec model;
  Stack& stack = model.stacks.emplace_back();
  KVANT_ASSIGN(stack.dim, metadata.Count("embedding_length", kDimMax));
  KVANT_ASSIGN(model.context_train, metadata.Count("context_length", kContextMax));
  KVANT_ASSIGN(const float epsilon, metadata.Positive(EpsilonKey(norms)));
  stack.final_norm = {norms, "output_norm", epsilon};
  KVANT_ASSIGN(const int64_t layers, metadata.Count("block_count", kLayersMax));
  // Files may end with layers that predict further tokens, which are counted among the layers.
  KVANT_ASSIGN(const int64_t predicting, metadata.CountOr("nextn_predict_layers", kLayersMax, 0));
  if (predicting >= layers) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected less than {} layers, found {}",
                     metadata.file().path(), metadata.Key("nextn_predict_layers"), layers,
                     predicting);
  }
  if (metadata.predicting() == PredictingLayers::kRead) {
    stack.predictors.count = static_cast<size_t>(predicting);
    stack.layers.resize(static_cast<size_t>(layers));
    return model;
  }
  if (predicting > 0) {
    Log(LogLevel::kWarning,
        fmt::format("{}: {} of {} layers predict further tokens and are left out",
                    metadata.file().path(), predicting, layers));
  }
  stack.layers.resize(static_cast<size_t>(layers - predicting));
  return model;
}

void FillLayers(Stack& stack, const LayerNorms& norms, const std::vector<Block>& mixers,
                const std::vector<Block>& ffns) {
  const auto norm = [&stack](std::string_view tensor) {
    return tensor.empty() ? std::optional<Norm>()
                          : Norm{stack.final_norm.kind, tensor, stack.final_norm.epsilon};
  };
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    stack.layers[i].sublayers = {
        {norm(norms.before_attention), mixers[i], norm(norms.after_attention)},
        {norm(norms.before_ffn), ffns[i], norm(norms.after_ffn)}};
  }
}

Status ReadStreamScales(const Metadata& metadata, const StreamScales& otherwise, Stack& stack) {
  KVANT_ASSIGN(stack.input.scale, metadata.PositiveOr("embedding_scale", otherwise.embedding));
  KVANT_ASSIGN(const float residual, metadata.PositiveOr("residual_scale", otherwise.residual));
  for (LayerSpec& layer : stack.layers) {
    for (Sublayer& sublayer : layer.sublayers) sublayer.residual_scale = residual;
  }
  KVANT_ASSIGN(const float divisor, metadata.PositiveOr("logit_scale", otherwise.logit_divisor));
  stack.output.scale = 1.0f / divisor;
  return {};
}

Status FillLayersWithExperts(const Metadata& metadata, Stack& stack, const LayerNorms& norms,
                             const std::vector<Block>& mixers, const ExpertTraits& traits) {
  KVANT_ASSIGN(const auto experts, ReadExperts(metadata, stack, traits));
  std::vector<GatedFfn> dense(stack.layers.size());
  if (std::ranges::any_of(experts, [](const auto& layer) { return !layer.has_value(); })) {
    KVANT_ASSIGN(dense, ReadGatedFfns(metadata, stack, traits.activation));
    KVANT_TRY(LimitFfns(metadata, traits.limits, dense));
  }
  std::vector<Block> ffns;
  for (size_t i = 0; i < experts.size(); ++i) {
    if (experts[i].has_value()) {
      ffns.emplace_back(*experts[i]);
    } else {
      ffns.emplace_back(dense[i]);
    }
  }
  FillLayers(stack, norms, mixers, ffns);
  return {};
}

}  // namespace kvant::arch
