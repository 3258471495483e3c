// Rows that the classes of Nomic BERT share, with and without experts (families/nomic_bert.cpp,
// nomic_bert_moe.cpp), and tensors that Jina v3 has, too.
//
// Errors name the file and the key. Thread-safety: pure.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "engine/arch/hf/hf_encoder.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

// The names of the attention's matrices; "{}" is the number of the layer.
struct HfNomicNames {
  std::string_view qkv, qkv_bias, output, output_bias;
};
inline constexpr HfNomicNames kHfNomicNames = {
    "encoder.layers.{}.attn.Wqkv.weight", "encoder.layers.{}.attn.Wqkv.bias",
    "encoder.layers.{}.attn.out_proj.weight", "encoder.layers.{}.attn.out_proj.bias"};

// The embedding, attention and norms.
constexpr auto HfNomicAttention(const HfNomicNames& names) {
  return Join(
      HfEmbedding("embeddings.word_embeddings.weight"), kHfBertTypes,
      HfWithBias("emb_ln.weight", "emb_ln.bias", "token_embd_norm.weight", "token_embd_norm.bias",
                 Extent::kDim),
      HfWithBias(names.qkv, names.qkv_bias, "blk.{}.attn_qkv.weight", "blk.{}.attn_qkv.bias",
                 Extent::kQkvRows, Extent::kDim),
      HfWithBias(names.output, names.output_bias, "blk.{}.attn_output.weight",
                 "blk.{}.attn_output.bias", Extent::kDim, Extent::kQRows),
      HfWithBias("encoder.layers.{}.norm1.weight", "encoder.layers.{}.norm1.bias",
                 "blk.{}.attn_output_norm.weight", "blk.{}.attn_output_norm.bias", Extent::kDim),
      HfWithBias("encoder.layers.{}.norm2.weight", "encoder.layers.{}.norm2.bias",
                 "blk.{}.layer_output_norm.weight", "blk.{}.layer_output_norm.bias", Extent::kDim));
}

// A feed-forward of two matrices with biases.
inline constexpr auto kHfNomicPlainFfn =
    Join(HfWithBias("encoder.layers.{}.mlp.fc1.weight", "encoder.layers.{}.mlp.fc1.bias",
                    "blk.{}.ffn_up.weight", "blk.{}.ffn_up.bias", Extent::kFfn, Extent::kDim),
         HfWithBias("encoder.layers.{}.mlp.fc2.weight", "encoder.layers.{}.mlp.fc2.bias",
                    "blk.{}.ffn_down.weight", "blk.{}.ffn_down.bias", Extent::kDim, Extent::kFfn));

// Whether config.json has the names of the published folders; transformers 5 has others.
bool IsPublishedHfNomic(const JsonObject& config);

// The shape of published folders: the context is what the model was trained for. kNotSupported for
// settings that no published model has.
Status FinishHfNomic(const JsonObject& config, HfShape& shape);

// Writes the base of the rotation and what every encoder of texts needs.
Status AddHfNomic(const JsonObject& config, const HfShape& shape, Parameters& out);

inline constexpr HfKeys kHfNomicKeys = {.layers = "n_layer",
                                        .dim = "n_embd",
                                        .ffn = "n_inner",
                                        .heads = "n_head",
                                        .kv_heads = "",
                                        .context = "n_positions"};

// A row for published folders; the caller names the activation.
constexpr HfFamily HfNomicFamily(std::string_view arch, std::span<const std::string_view> classes,
                                 std::span<const HfTensor> tensors) {
  return {.classes = classes,
          .arch = arch,
          .activation = {.key = "activation_function"},
          .keys = kHfNomicKeys,
          .epsilon = {.key = "layer_norm_epsilon", .gguf_key = "attention.layer_norm_epsilon"},
          .finish_shape = FinishHfNomic,
          .outer_prefix = "bert.",
          .own_rope_base = true,
          .tensors = tensors,
          .add_parameters = AddHfNomic,
          .left_out = kHfTrainingHeads,
          .is_encoder = true};
}

}  // namespace kvant::arch
