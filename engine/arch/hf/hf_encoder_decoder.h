// Rows that the classes of encoder-decoders in transformers share: names of tensors, keys of sizes,
// and the metadata that follow from them.
//
// Errors name the file and the key. Thread-safety: pure.
#pragma once

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

// BART, mBART, Marian, M2M-100 and Whisper: both stacks' layers, which have the same names in all
// of them.
inline constexpr auto kHfTwoStacksLayers = std::array{
    HfNorm("model.encoder.layers.{}.self_attn_layer_norm.weight", "enc.blk.{}.attn_norm.weight")
        .front(),
    HfBias("model.encoder.layers.{}.self_attn_layer_norm.bias", "enc.blk.{}.attn_norm.bias",
           Extent::kDim),
    HfMatrix("model.encoder.layers.{}.self_attn.q_proj.weight", "enc.blk.{}.attn_q.weight",
             Extent::kQRows, Extent::kDim),
    HfBias("model.encoder.layers.{}.self_attn.q_proj.bias", "enc.blk.{}.attn_q.bias",
           Extent::kQRows),
    HfMatrix("model.encoder.layers.{}.self_attn.k_proj.weight", "enc.blk.{}.attn_k.weight",
             Extent::kQRows, Extent::kDim),
    HfBias("model.encoder.layers.{}.self_attn.k_proj.bias", "enc.blk.{}.attn_k.bias",
           Extent::kQRows),
    HfMatrix("model.encoder.layers.{}.self_attn.v_proj.weight", "enc.blk.{}.attn_v.weight",
             Extent::kQRows, Extent::kDim),
    HfBias("model.encoder.layers.{}.self_attn.v_proj.bias", "enc.blk.{}.attn_v.bias",
           Extent::kQRows),
    HfMatrix("model.encoder.layers.{}.self_attn.out_proj.weight", "enc.blk.{}.attn_o.weight",
             Extent::kDim, Extent::kQRows),
    HfBias("model.encoder.layers.{}.self_attn.out_proj.bias", "enc.blk.{}.attn_o.bias",
           Extent::kDim),
    HfNorm("model.encoder.layers.{}.final_layer_norm.weight", "enc.blk.{}.ffn_norm.weight").front(),
    HfBias("model.encoder.layers.{}.final_layer_norm.bias", "enc.blk.{}.ffn_norm.bias",
           Extent::kDim),
    HfMatrix("model.encoder.layers.{}.fc1.weight", "enc.blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfBias("model.encoder.layers.{}.fc1.bias", "enc.blk.{}.ffn_up.bias", Extent::kFfn),
    HfMatrix("model.encoder.layers.{}.fc2.weight", "enc.blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
    HfBias("model.encoder.layers.{}.fc2.bias", "enc.blk.{}.ffn_down.bias", Extent::kDim),
    HfNorm("model.decoder.layers.{}.self_attn_layer_norm.weight", "dec.blk.{}.attn_norm.weight")
        .front(),
    HfBias("model.decoder.layers.{}.self_attn_layer_norm.bias", "dec.blk.{}.attn_norm.bias",
           Extent::kDim),
    HfMatrix("model.decoder.layers.{}.self_attn.q_proj.weight", "dec.blk.{}.attn_q.weight",
             Extent::kQRows, Extent::kDim),
    HfBias("model.decoder.layers.{}.self_attn.q_proj.bias", "dec.blk.{}.attn_q.bias",
           Extent::kQRows),
    HfMatrix("model.decoder.layers.{}.self_attn.k_proj.weight", "dec.blk.{}.attn_k.weight",
             Extent::kQRows, Extent::kDim),
    HfBias("model.decoder.layers.{}.self_attn.k_proj.bias", "dec.blk.{}.attn_k.bias",
           Extent::kQRows),
    HfMatrix("model.decoder.layers.{}.self_attn.v_proj.weight", "dec.blk.{}.attn_v.weight",
             Extent::kQRows, Extent::kDim),
    HfBias("model.decoder.layers.{}.self_attn.v_proj.bias", "dec.blk.{}.attn_v.bias",
           Extent::kQRows),
    HfMatrix("model.decoder.layers.{}.self_attn.out_proj.weight", "dec.blk.{}.attn_o.weight",
             Extent::kDim, Extent::kQRows),
    HfBias("model.decoder.layers.{}.self_attn.out_proj.bias", "dec.blk.{}.attn_o.bias",
           Extent::kDim),
    HfNorm("model.decoder.layers.{}.encoder_attn_layer_norm.weight",
           "dec.blk.{}.cross_attn_norm.weight")
        .front(),
    HfBias("model.decoder.layers.{}.encoder_attn_layer_norm.bias",
           "dec.blk.{}.cross_attn_norm.bias", Extent::kDim),
    HfMatrix("model.decoder.layers.{}.encoder_attn.q_proj.weight", "dec.blk.{}.cross_attn_q.weight",
             Extent::kQRows, Extent::kDim),
    HfBias("model.decoder.layers.{}.encoder_attn.q_proj.bias", "dec.blk.{}.cross_attn_q.bias",
           Extent::kQRows),
    HfMatrix("model.decoder.layers.{}.encoder_attn.k_proj.weight", "dec.blk.{}.cross_attn_k.weight",
             Extent::kQRows, Extent::kDim),
    HfBias("model.decoder.layers.{}.encoder_attn.k_proj.bias", "dec.blk.{}.cross_attn_k.bias",
           Extent::kQRows),
    HfMatrix("model.decoder.layers.{}.encoder_attn.v_proj.weight", "dec.blk.{}.cross_attn_v.weight",
             Extent::kQRows, Extent::kDim),
    HfBias("model.decoder.layers.{}.encoder_attn.v_proj.bias", "dec.blk.{}.cross_attn_v.bias",
           Extent::kQRows),
    HfMatrix("model.decoder.layers.{}.encoder_attn.out_proj.weight",
             "dec.blk.{}.cross_attn_o.weight", Extent::kDim, Extent::kQRows),
    HfBias("model.decoder.layers.{}.encoder_attn.out_proj.bias", "dec.blk.{}.cross_attn_o.bias",
           Extent::kDim),
    HfNorm("model.decoder.layers.{}.final_layer_norm.weight", "dec.blk.{}.ffn_norm.weight").front(),
    HfBias("model.decoder.layers.{}.final_layer_norm.bias", "dec.blk.{}.ffn_norm.bias",
           Extent::kDim),
    HfMatrix("model.decoder.layers.{}.fc1.weight", "dec.blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfBias("model.decoder.layers.{}.fc1.bias", "dec.blk.{}.ffn_up.bias", Extent::kFfn),
    HfMatrix("model.decoder.layers.{}.fc2.weight", "dec.blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
    HfBias("model.decoder.layers.{}.fc2.bias", "dec.blk.{}.ffn_down.bias", Extent::kDim),
};

// The tensors of all these classes but Whisper: the layers, the embedding and the output's bias.
inline constexpr auto kHfTwoStacks =
    Join(std::array{HfMatrix("model.shared.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
                    HfOutput("lm_head.weight").front(),
                    HfBias("final_logits_bias", "output.bias", Extent::kVocab)},
         kHfTwoStacksLayers);

// Older folders hold the embedding under these names, too.
inline constexpr std::string_view kHfTwoStacksEmbeddings[] = {"model.encoder.embed_tokens.weight",
                                                              "model.decoder.embed_tokens.weight"};

// Learned positions, of which the first two rows are never read.
inline constexpr auto kHfTwoStacksPositions = std::array{
    HfPositionsBehind(RowPart::kBehindTwo, "model.encoder.embed_positions.weight",
                      "enc.position_embd.weight"),
    HfPositionsBehind(RowPart::kBehindTwo, "model.decoder.embed_positions.weight",
                      "dec.position_embd.weight"),
};

// Norms of the embedding, and norms behind the last layers.
inline constexpr auto kHfTwoStacksEmbeddingNorms = Join(
    HfNorm("model.encoder.layernorm_embedding.weight", "enc.token_embd_norm.weight"),
    HfOptional("model.encoder.layernorm_embedding.bias", "enc.token_embd_norm.bias", Extent::kDim),
    HfNorm("model.decoder.layernorm_embedding.weight", "dec.token_embd_norm.weight"),
    HfOptional("model.decoder.layernorm_embedding.bias", "dec.token_embd_norm.bias", Extent::kDim));
inline constexpr auto kHfTwoStacksFinalNorms =
    Join(HfNorm("model.encoder.layer_norm.weight", "enc.output_norm.weight"),
         HfOptional("model.encoder.layer_norm.bias", "enc.output_norm.bias", Extent::kDim),
         HfNorm("model.decoder.layer_norm.weight", "dec.output_norm.weight"),
         HfOptional("model.decoder.layer_norm.bias", "dec.output_norm.bias", Extent::kDim));

// Keys of the four classes; the decoder's sizes are read by ReadHfDecoder.
inline constexpr HfKeys kHfTwoStacksKeys = {.layers = "encoder_layers",
                                            .dim = "d_model",
                                            .ffn = "encoder_ffn_dim",
                                            .heads = "encoder_attention_heads",
                                            .kv_heads = ""};
inline constexpr HfEpsilon kHfTwoStacksEpsilon = {
    .key = "layer_norm_eps", .gguf_key = "attention.layer_norm_epsilon", .otherwise = 1e-5};

inline constexpr std::string_view kHfTwoStacksActivations[] = {"gelu", "relu", "gelu_new", "silu",
                                                               "swish"};
inline constexpr HfActivation kHfTwoStacksActivation = {.key = "activation_function",
                                                        .names = kHfTwoStacksActivations};

// HfFamily::finish_shape of the classes.
Status ReadHfDecoder(const JsonObject& config, HfShape& shape);

// Writes the keys that readers of encoder-decoders need beyond the sizes of the encoder: the
// decoder's sizes where they differ, and the token that texts begin with.
Status AddHfDecoder(const JsonObject& config, const HfShape& shape, Parameters& out);

// HfFamily::add_parameters of the four classes that read text: the keys of AddHfDecoder, the
// activation and the scale of the embedding.
Status AddHfTwoStacks(const JsonObject& config, const HfShape& shape, Parameters& out);

// A row for one of the four classes.
constexpr HfFamily HfTwoStacksFamily(std::string_view arch,
                                     std::span<const std::string_view> classes,
                                     std::span<const HfTensor> tensors,
                                     Status (*add_parameters)(const JsonObject&, const HfShape&,
                                                              Parameters&) = AddHfTwoStacks) {
  return {
      .classes = classes,
      .arch = arch,
      .activation = kHfTwoStacksActivation,
      .keys = kHfTwoStacksKeys,
      .epsilon = kHfTwoStacksEpsilon,
      .finish_shape = ReadHfDecoder,
      .rope_base = 0,
      .tensors = tensors,
      .add_parameters = add_parameters,
      .embedding_names = kHfTwoStacksEmbeddings,
      .tied_unless_told = true,
  };
}

// Adds a table of positions for each of both stacks, of which row p, column c is `value`(p, c).
using HfPositionValue = float (*)(int64_t position, int64_t column, int64_t dim);
void AddHfPositions(const HfShape& shape, HfPositionValue value, Parameters& out);

}  // namespace kvant::arch
