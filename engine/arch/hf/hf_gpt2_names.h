// The names of tensors and settings that GPT-2 and classes after its pattern have. Queries, keys
// and values are in one matrix.
#pragma once

#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/limits.h"

namespace kvant::arch {

// GPT-2 keeps the matrices of layers transposed, the other classes as they multiply.
constexpr auto HfGpt2Names(RowOrder order) {
  auto tensors = std::array{
      HfMatrix("transformer.wte.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
      HfOutput("lm_head.weight").front(),
      HfNorm("transformer.ln_f.weight", "output_norm.weight").front(),
      HfBias("transformer.ln_f.bias", "output_norm.bias", Extent::kDim),
      HfNorm("transformer.h.{}.ln_1.weight", "blk.{}.attn_norm.weight").front(),
      HfBias("transformer.h.{}.ln_1.bias", "blk.{}.attn_norm.bias", Extent::kDim),
      HfMatrix("transformer.h.{}.attn.c_attn.weight", "blk.{}.attn_qkv.weight", Extent::kQkvRows,
               Extent::kDim),
      HfBias("transformer.h.{}.attn.c_attn.bias", "blk.{}.attn_qkv.bias", Extent::kQkvRows),
      HfMatrix("transformer.h.{}.attn.c_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
               Extent::kQRows),
      HfBias("transformer.h.{}.attn.c_proj.bias", "blk.{}.attn_output.bias", Extent::kDim),
      HfNorm("transformer.h.{}.ln_2.weight", "blk.{}.ffn_norm.weight").front(),
      HfBias("transformer.h.{}.ln_2.bias", "blk.{}.ffn_norm.bias", Extent::kDim),
      HfMatrix("transformer.h.{}.mlp.c_fc.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
               Extent::kDim),
      HfBias("transformer.h.{}.mlp.c_fc.bias", "blk.{}.ffn_up.bias", Extent::kFfn),
      HfMatrix("transformer.h.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight", Extent::kDim,
               Extent::kFfn),
      HfBias("transformer.h.{}.mlp.c_proj.bias", "blk.{}.ffn_down.bias", Extent::kDim),
  };
  for (HfTensor& tensor : tensors) {
    const bool is_in_layer = tensor.gguf_name.starts_with("blk.");
    if (is_in_layer && tensor.columns != Extent::kNone) tensor.order = order;
  }
  return tensors;
}

inline constexpr auto kHfGpt2Names = HfGpt2Names(RowOrder::kSame);

inline constexpr std::string_view kHfGpt2Activations[] = {"gelu_pytorch_tanh", "gelu_new",
                                                          "gelu_fast"};
inline constexpr HfActivation kHfGpt2Activation = {.key = "activation_function",
                                                   .names = kHfGpt2Activations};
inline constexpr HfKeys kHfGpt2Keys = {.layers = "n_layer",
                                       .dim = "n_embd",
                                       .ffn = "",
                                       .heads = "n_head",
                                       .kv_heads = "",
                                       .context = "n_positions"};
inline constexpr HfEpsilon kHfGpt2Epsilon = {.key = "layer_norm_epsilon",
                                             .gguf_key = "attention.layer_norm_epsilon"};

// The width of the feed-forward: "n_inner", or four times that of the stream.
inline Status ReadHfGpt2Width(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto width, config.Integer("n_inner", kDimMax));
  shape.ffn = width.value_or(4 * shape.dim);
  return {};
}

}  // namespace kvant::arch
