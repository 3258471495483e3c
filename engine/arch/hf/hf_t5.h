// Rows that the classes of T5 in transformers share, T5EncoderModel included: the tensors of the
// encoder's layers and the keys of sizes.
//
// Errors name the file and the key. Thread-safety: pure.
#pragma once

#include "base/result.h"
#include "engine/arch/hf/hf_encoder_decoder.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

inline constexpr auto kHfT5Embedding =
    std::array{HfMatrix("shared.weight", kEmbeddingName, Extent::kVocab, Extent::kDim)};

// Folders hold the embedding under these names, too.
inline constexpr std::string_view kHfT5Embeddings[] = {"encoder.embed_tokens.weight",
                                                       "decoder.embed_tokens.weight"};

inline constexpr auto kHfT5Encoder = std::array{
    HfNorm("encoder.final_layer_norm.weight", "enc.output_norm.weight").front(),
    HfNorm("encoder.block.{}.layer.0.layer_norm.weight", "enc.blk.{}.attn_norm.weight").front(),
    HfMatrix("encoder.block.{}.layer.0.SelfAttention.q.weight", "enc.blk.{}.attn_q.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("encoder.block.{}.layer.0.SelfAttention.k.weight", "enc.blk.{}.attn_k.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("encoder.block.{}.layer.0.SelfAttention.v.weight", "enc.blk.{}.attn_v.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("encoder.block.{}.layer.0.SelfAttention.o.weight", "enc.blk.{}.attn_o.weight",
             Extent::kDim, Extent::kQRows),
    HfNorm("encoder.block.{}.layer.1.layer_norm.weight", "enc.blk.{}.ffn_norm.weight").front(),
    HfMatrix("encoder.block.{}.layer.1.DenseReluDense.wo.weight", "enc.blk.{}.ffn_down.weight",
             Extent::kDim, Extent::kFfn),
};

inline constexpr auto kHfT5PlainEncoder = std::array{
    HfMatrix("encoder.block.{}.layer.1.DenseReluDense.wi.weight", "enc.blk.{}.ffn_up.weight",
             Extent::kFfn, Extent::kDim),
};
inline constexpr auto kHfT5GatedEncoder = std::array{
    HfMatrix("encoder.block.{}.layer.1.DenseReluDense.wi_0.weight", "enc.blk.{}.ffn_gate.weight",
             Extent::kFfn, Extent::kDim),
    HfMatrix("encoder.block.{}.layer.1.DenseReluDense.wi_1.weight", "enc.blk.{}.ffn_up.weight",
             Extent::kFfn, Extent::kDim),
};

// Numbers of the distances: [buckets, heads] in the folder; of the first layer, or of each.
constexpr std::array<HfTensor, 1> HfT5Distances(std::string_view hf_name,
                                                std::string_view gguf_name, InLayers layers) {
  HfTensor tensor = HfMatrix(hf_name, gguf_name, Extent::kBuckets, Extent::kHeads);
  tensor.layers = layers;
  return {tensor};
}
constexpr std::array<HfTensor, 1> HfT5EncoderDistances(InLayers layers) {
  return HfT5Distances("encoder.block.{}.layer.0.SelfAttention.relative_attention_bias.weight",
                       "enc.blk.{}.attn_rel_b.weight", layers);
}

inline constexpr std::string_view kHfT5FfnKey = "feed_forward_proj";
inline constexpr std::string_view kHfT5PlainNames[] = {"relu", "gelu", "gelu_new", "silu"};
inline constexpr std::string_view kHfT5GatedNames[] = {"gated-gelu", "gated-silu"};

// Whether feed-forwards have gates.
bool IsGatedHfT5(const JsonObject& config);

// HfFamily::finish_shape and add_parameters of a model without a decoder. What a model with one
// needs besides follows from config.json as in families/t5.cpp.
Status FinishHfT5Shape(const JsonObject& config, HfShape& shape);
Status AddHfT5Parameters(const JsonObject& config, const HfShape& shape, Parameters& out);

constexpr HfFamily HfT5Family(std::string_view arch, std::span<const std::string_view> classes,
                              std::span<const std::string_view> activations,
                              std::span<const HfTensor> tensors) {
  return {
      .classes = classes,
      .arch = arch,
      .activation = {.key = kHfT5FfnKey, .names = activations},
      .keys = {.layers = "num_layers",
               .dim = "d_model",
               .ffn = "d_ff",
               .heads = "num_heads",
               .kv_heads = "",
               .context = ""},
      .epsilon = {.key = "layer_norm_epsilon", .otherwise = 1e-6},
      .finish_shape = FinishHfT5Shape,
      .rope_base = 0,
      .tensors = tensors,
      .add_parameters = AddHfT5Parameters,
      .embedding_names = kHfT5Embeddings,
      .tied_unless_told = true,
  };
}

constexpr HfFamily OnlyIf(HfFamily row, bool (*is_of)(const JsonObject&)) {
  row.is_of = is_of;
  return row;
}

}  // namespace kvant::arch
