#include "engine/arch/text_encoder.h"

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch {

Result<ModelSpec> ReadTextEncoder(const Metadata& metadata, NormKind norms) {
  ModelSpec model;
  Stack& stack = model.embedder.emplace();
  KVANT_ASSIGN(stack.dim, metadata.Count("embedding_length", kDimMax));
  KVANT_ASSIGN(model.context_train, metadata.Count("context_length", kContextMax));
  KVANT_ASSIGN(const float epsilon,
               metadata.Positive(norms == NormKind::kLayer ? "attention.layer_norm_epsilon"
                                                           : "attention.layer_norm_rms_epsilon"));
  stack.final_norm = {norms, "output_norm", epsilon};
  KVANT_ASSIGN(const int64_t layers, metadata.Count("block_count", kLayersMax));
  stack.layers.resize(static_cast<size_t>(layers));
  return model;
}

Result<ModelSpec> ReadBertEncoder(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadTextEncoder(metadata, NormKind::kLayer));
  Stack& stack = *model.embedder;
  stack.input.token_types = "token_types";
  stack.input.norm = Norm{NormKind::kLayer, "token_embd_norm", stack.final_norm.epsilon};
  return model;
}

Result<std::vector<Attention>> ReadBothSided(const Metadata& metadata, const Stack& stack) {
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  for (Attention& attention : attentions) attention.mask.kind = MaskKind::kAll;
  return attentions;
}

Result<std::vector<Attention>> ReadRotatedBothSided(const Metadata& metadata, ModelSpec& model) {
  KVANT_ASSIGN(auto attentions, ReadBothSided(metadata, *model.embedder));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  return attentions;
}

void FillLayersNormedAfter(Stack& stack, const std::vector<Attention>& attentions,
                           const std::vector<Block>& ffns) {
  const auto norm = [&stack](std::string_view tensor) {
    return Norm{stack.final_norm.kind, tensor, stack.final_norm.epsilon};
  };
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    stack.layers[i].sublayers = {
        {.norm_before = {}, .block = attentions[i], .norm_of_sum = norm("attn_output_norm")},
        {.norm_before = {}, .block = ffns[i], .norm_of_sum = norm("layer_output_norm")}};
  }
  stack.final_norm = {NormKind::kNone, "", stack.final_norm.epsilon};
}

}  // namespace kvant::arch
