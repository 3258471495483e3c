// The tensors that nearly all decoder classes of transformers have, in short lists that a family
// joins to its own:
//
//   constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, ...);
//
// The order of the lists is the order of the tensors in the file.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/arch/hf/hf_family.h"

namespace kvant::arch {

template <size_t... kSizes>
constexpr auto Join(const std::array<HfTensor, kSizes>&... groups) {
  std::array<HfTensor, (kSizes + ...)> all;
  auto* end = all.data();
  ((end = std::copy(groups.begin(), groups.end(), end)), ...);
  return all;
}

// The model multiplies by 1 + weight in all its norms.
template <size_t kSize>
constexpr std::array<HfTensor, kSize> WithNormsPlusOne(std::array<HfTensor, kSize> tensors) {
  for (HfTensor& tensor : tensors) {
    if (tensor.gguf_name.ends_with("_norm.weight")) tensor.values = Values::kPlusOne;
  }
  return tensors;
}

// The model's rope turns pairs (i, i + n / 2), that of the GGUF architecture pairs (2i, 2i + 1).
template <size_t kSize>
constexpr std::array<HfTensor, kSize> WithPairsInterleaved(std::array<HfTensor, kSize> tensors) {
  for (HfTensor& tensor : tensors) {
    const bool turned = tensor.gguf_name.starts_with("blk.{}.attn_q.") ||
                        tensor.gguf_name.starts_with("blk.{}.attn_k.");
    if (turned) tensor.order = RowOrder::kPairsInterleaved;
  }
  return tensors;
}

constexpr HfTensor HfMatrix(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                            Extent columns) {
  return {.hf_name = hf_name, .gguf_name = gguf_name, .rows = rows, .columns = columns};
}

constexpr HfTensor HfBias(std::string_view hf_name, std::string_view gguf_name, Extent size) {
  return {
      .hf_name = hf_name, .gguf_name = gguf_name, .rows = size, .presence = Presence::kOptional};
}

// The model keeps the query heads of a kv head with its key and value.
constexpr HfTensor Grouped(HfTensor tensor) {
  tensor.order = RowOrder::kGroupedQkv;
  return tensor;
}

constexpr std::array<HfTensor, 1> HfNorm(std::string_view hf_name, std::string_view gguf_name,
                                         Extent size = Extent::kDim) {
  return {{{.hf_name = hf_name, .gguf_name = gguf_name, .rows = size}}};
}

// One that only some models of the class have.
constexpr std::array<HfTensor, 1> HfOptional(std::string_view hf_name, std::string_view gguf_name,
                                             Extent rows, Extent columns = Extent::kNone) {
  return {{{.hf_name = hf_name,
            .gguf_name = gguf_name,
            .rows = rows,
            .columns = columns,
            .presence = Presence::kOptional}}};
}

// The embedding, and the output unless it is the embedding.
constexpr std::array<HfTensor, 1> HfEmbedding(std::string_view hf_name) {
  return {HfMatrix(hf_name, kEmbeddingName, Extent::kVocab, Extent::kDim)};
}
constexpr std::array<HfTensor, 1> HfOutput(std::string_view hf_name) {
  return {{{.hf_name = hf_name,
            .gguf_name = kOutputName,
            .rows = Extent::kVocab,
            .columns = Extent::kDim,
            .presence = Presence::kUnlessTied}}};
}

inline constexpr std::array<HfTensor, 3> kHfEnds = {{
    HfMatrix("model.embed_tokens.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    {.hf_name = "model.norm.weight", .gguf_name = "output_norm.weight", .rows = Extent::kDim},
    {.hf_name = "lm_head.weight",
     .gguf_name = kOutputName,
     .rows = Extent::kVocab,
     .columns = Extent::kDim,
     .presence = Presence::kUnlessTied},
}};

inline constexpr auto kHfNormBeforeAttention =
    HfNorm("model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight");

// The biases of layer norms.
inline constexpr auto kHfFinalNormBias =
    HfOptional("model.norm.bias", "output_norm.bias", Extent::kDim);
inline constexpr auto kHfNormBeforeAttentionBias =
    HfOptional("model.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias", Extent::kDim);
inline constexpr auto kHfNormBeforeFfnBias = HfOptional(
    "model.layers.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias", Extent::kDim);

// What most classes call the norm after the attention stands before the feed-forward.
inline constexpr auto kHfNormBeforeFfn =
    HfNorm("model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight");

// The norms of classes that have one on either side of both sublayers.
inline constexpr auto kHfNormsBetweenSublayers = Join(
    HfNorm("model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"),
    HfNorm("model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight"));
inline constexpr auto kHfNormAfterFfn =
    HfNorm("model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight");

inline constexpr std::array<HfTensor, 6> kHfSeparateQkv = {
    HfMatrix("model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", Extent::kQRows,
             Extent::kDim),
    HfBias("model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", Extent::kQRows),
    HfMatrix("model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", Extent::kKvRows,
             Extent::kDim),
    HfBias("model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", Extent::kKvRows),
    HfMatrix("model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", Extent::kKvRows,
             Extent::kDim),
    HfBias("model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", Extent::kKvRows),
};

inline constexpr std::array<HfTensor, 1> kHfFusedQkv = {
    HfMatrix("model.layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight",
             Extent::kQkvRows, Extent::kDim),
};

inline constexpr auto kHfHeadNorms = Join(HfNorm("model.layers.{}.self_attn.q_norm.weight",
                                                 "blk.{}.attn_q_norm.weight", Extent::kHeadDim),
                                          HfNorm("model.layers.{}.self_attn.k_norm.weight",
                                                 "blk.{}.attn_k_norm.weight", Extent::kHeadDim));

// The same under the names of some classes.
inline constexpr auto kHfQueryKeyNorms =
    Join(HfNorm("model.layers.{}.self_attn.query_layernorm.weight", "blk.{}.attn_q_norm.weight",
                Extent::kHeadDim),
         HfNorm("model.layers.{}.self_attn.key_layernorm.weight", "blk.{}.attn_k_norm.weight",
                Extent::kHeadDim));

inline constexpr std::array<HfTensor, 2> kHfAttentionOutput = {
    HfMatrix("model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kQRows),
    HfBias("model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", Extent::kDim),
};

inline constexpr std::array<HfTensor, 4> kHfSeparateGateUp = {
    HfMatrix("model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", Extent::kFfn,
             Extent::kDim),
    HfBias("model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", Extent::kFfn),
    HfMatrix("model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfBias("model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", Extent::kFfn),
};

// The feed-forward of layers without experts, in families that have both kinds of layers.
template <size_t kSize>
constexpr std::array<HfTensor, kSize> WithoutExperts(std::array<HfTensor, kSize> tensors) {
  for (HfTensor& tensor : tensors) tensor.layers = InLayers::kWithoutExperts;
  return tensors;
}

constexpr HfTensor HfOfExperts(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                               Extent columns, ExpertForm form = ExpertForm::kNone,
                               RowPart part = RowPart::kAll) {
  return {.hf_name = hf_name,
          .gguf_name = gguf_name,
          .rows = rows,
          .columns = columns,
          .layers = InLayers::kWithExperts,
          .experts = form,
          .part = part};
}

// Tensors that only some models of a class have.
template <size_t kSize>
constexpr std::array<HfTensor, kSize> IfPresent(std::array<HfTensor, kSize> tensors) {
  for (HfTensor& tensor : tensors) tensor.presence = Presence::kOptional;
  return tensors;
}

// What most classes with experts have.
inline constexpr std::array<HfTensor, 4> kHfExperts = {
    HfOfExperts("model.layers.{}.mlp.gate.weight", kRouterName, Extent::kExperts, Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.experts.{}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.mlp.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.mlp.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight",
                Extent::kDim, Extent::kExpertFfn, ExpertForm::kEach),
};

// The bias of the choice, and experts that all tokens have.
inline constexpr std::array<HfTensor, 1> kHfSelectionBias = {
    HfOfExperts("model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias",
                Extent::kExperts, Extent::kNone),
};
inline constexpr std::array<HfTensor, 3> kHfSharedExperts = {
    HfOfExperts("model.layers.{}.mlp.shared_experts.gate_proj.weight",
                "blk.{}.ffn_gate_shexp.weight", Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight",
                Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.shared_experts.down_proj.weight",
                "blk.{}.ffn_down_shexp.weight", Extent::kDim, Extent::kSharedFfn),
};

inline constexpr std::array<HfTensor, 1> kHfFusedGateUp = {
    HfMatrix("model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight", Extent::kTwoFfn,
             Extent::kDim),
};

inline constexpr std::array<HfTensor, 2> kHfDown = {
    HfMatrix("model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
    HfBias("model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", Extent::kDim),
};

}  // namespace kvant::arch
