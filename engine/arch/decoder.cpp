#include "engine/arch/decoder.h"

#include "base/result.h"

namespace kvant::arch {

Result<ModelSpec> ReadDecoder(const Metadata& metadata) {
  KVANT_ASSIGN(const int64_t experts, metadata.CountOr("expert_count", kDimMax, 0));
  if (experts > 0) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: mixture of experts ({} experts) is not supported", metadata.file().path(),
                     experts);
  }
  ModelSpec model;
  Stack& stack = model.stacks.emplace_back();
  KVANT_ASSIGN(stack.dim, metadata.Count("embedding_length", kDimMax));
  KVANT_ASSIGN(model.context_train, metadata.Count("context_length", kContextMax));
  KVANT_ASSIGN(const float epsilon, metadata.Positive("attention.layer_norm_rms_epsilon"));
  stack.final_norm = {NormKind::kRms, "output_norm", epsilon};
  KVANT_ASSIGN(const int64_t layers, metadata.Count("block_count", kLayersMax));
  stack.layers.resize(static_cast<size_t>(layers));
  return model;
}

void FillLayers(Stack& stack, const LayerNorms& norms, std::span<const Attention> attentions,
                std::span<const GatedFfn> ffns) {
  const auto norm = [&stack](std::string_view tensor) {
    return Norm{NormKind::kRms, tensor, stack.final_norm.epsilon};
  };
  const auto optional_norm = [&norm](std::string_view tensor) {
    return tensor.empty() ? std::optional<Norm>() : norm(tensor);
  };
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    stack.layers[i].sublayers = {
        {norm(norms.before_attention), attentions[i], optional_norm(norms.after_attention)},
        {norm(norms.before_ffn), ffns[i], optional_norm(norms.after_ffn)}};
  }
}

}  // namespace kvant::arch
