#include "engine/arch/decoder.h"

#include "base/result.h"

namespace kvant::arch {
namespace {

std::string_view EpsilonKey(NormKind norms) {
  return norms == NormKind::kLayer ? "attention.layer_norm_epsilon"
                                   : "attention.layer_norm_rms_epsilon";
}

}  // namespace

Result<ModelSpec> ReadDecoder(const Metadata& metadata, NormKind norms) {
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
  KVANT_ASSIGN(const float epsilon, metadata.Positive(EpsilonKey(norms)));
  stack.final_norm = {norms, "output_norm", epsilon};
  KVANT_ASSIGN(const int64_t layers, metadata.Count("block_count", kLayersMax));
  stack.layers.resize(static_cast<size_t>(layers));
  return model;
}

void FillLayers(Stack& stack, const LayerNorms& norms, std::span<const Attention> attentions,
                std::span<const Block> ffns) {
  const auto norm = [&stack](std::string_view tensor) {
    return tensor.empty() ? std::optional<Norm>()
                          : Norm{stack.final_norm.kind, tensor, stack.final_norm.epsilon};
  };
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    stack.layers[i].sublayers = {
        {norm(norms.before_attention), attentions[i], norm(norms.after_attention)},
        {norm(norms.before_ffn), ffns[i], norm(norms.after_ffn)}};
  }
}

}  // namespace kvant::arch
