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

// The model's rope rotates pairs (i, i + n / 2), that of the GGUF architecture pairs (2i, 2i + 1).
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

constexpr HfTensor HfPositionsBehind(RowPart part, std::string_view hf_name,
                                     std::string_view gguf_name) {
  HfTensor tensor = HfMatrix(hf_name, gguf_name, Extent::kContext, Extent::kDim);
  tensor.part = part;
  return tensor;
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

// Inputs of layers by the token, in models that have them.
inline constexpr std::array<HfTensor, 6> kHfLayerInputs = {{
    HfMatrix("model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight", Extent::kVocab,
             Extent::kAllLayerInputs),
    HfMatrix("model.per_layer_model_projection.weight", "per_layer_model_proj.weight",
             Extent::kAllLayerInputs, Extent::kDim),
    {.hf_name = "model.per_layer_projection_norm.weight",
     .gguf_name = "per_layer_proj_norm.weight",
     .rows = Extent::kLayerInput},
    HfMatrix("model.layers.{}.per_layer_input_gate.weight", "blk.{}.inp_gate.weight",
             Extent::kLayerInput, Extent::kDim),
    HfMatrix("model.layers.{}.per_layer_projection.weight", "blk.{}.proj.weight", Extent::kDim,
             Extent::kLayerInput),
    {.hf_name = "model.layers.{}.post_per_layer_input_norm.weight",
     .gguf_name = "blk.{}.post_norm.weight",
     .rows = Extent::kDim,
     .layers = InLayers::kWithLayerInputs},
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

// Most classes name the norm before the feed-forward after the attention that it follows.
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

// The norms of query and key heads under the names of other classes.
inline constexpr auto kHfQueryKeyNorms =
    Join(HfNorm("model.layers.{}.self_attn.query_layernorm.weight", "blk.{}.attn_q_norm.weight",
                Extent::kHeadDim),
         HfNorm("model.layers.{}.self_attn.key_layernorm.weight", "blk.{}.attn_k_norm.weight",
                Extent::kHeadDim));

// The norms of query and key heads under the names of LFM2's classes.
inline constexpr auto kHfQueryKeyLayerNorms =
    Join(HfNorm("model.layers.{}.self_attn.q_layernorm.weight", "blk.{}.attn_q_norm.weight",
                Extent::kHeadDim),
         HfNorm("model.layers.{}.self_attn.k_layernorm.weight", "blk.{}.attn_k_norm.weight",
                Extent::kHeadDim));
inline constexpr std::array<HfTensor, 1> kHfAttentionOut = {
    HfMatrix("model.layers.{}.self_attn.out_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kQRows),
};
inline constexpr std::array<HfTensor, 6> kHfShortConv = {
    HfMatrix("model.layers.{}.conv.in_proj.weight", "blk.{}.shortconv.in_proj.weight",
             Extent::kThreeDims, Extent::kDim),
    HfBias("model.layers.{}.conv.in_proj.bias", "blk.{}.shortconv.in_proj.bias",
           Extent::kThreeDims),
    HfMatrix("model.layers.{}.conv.conv.weight", "blk.{}.shortconv.conv.weight", Extent::kDim,
             Extent::kConvTaps),
    HfBias("model.layers.{}.conv.conv.bias", "blk.{}.shortconv.conv.bias", Extent::kDim),
    HfMatrix("model.layers.{}.conv.out_proj.weight", "blk.{}.shortconv.out_proj.weight",
             Extent::kDim, Extent::kDim),
    HfBias("model.layers.{}.conv.out_proj.bias", "blk.{}.shortconv.out_proj.bias", Extent::kDim),
};
inline constexpr std::array<HfTensor, 3> kHfFeedForward = {
    HfMatrix("model.layers.{}.feed_forward.w1.weight", "blk.{}.ffn_gate.weight", Extent::kFfn,
             Extent::kDim),
    HfMatrix("model.layers.{}.feed_forward.w3.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfMatrix("model.layers.{}.feed_forward.w2.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
};

// Gates of the attention's result, from a matrix of their own.
constexpr std::array<HfTensor, 1> HfGate(std::string_view hf_name,
                                         Extent rows = Extent::kGateRows) {
  return {HfMatrix(hf_name, "blk.{}.attn_gate.weight", rows, Extent::kDim)};
}

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

// Tensors of the layers with attention, and of the recurrent ones.
template <size_t kSize>
constexpr std::array<HfTensor, kSize> InAttentionLayers(std::array<HfTensor, kSize> tensors) {
  for (HfTensor& tensor : tensors) tensor.layers = InLayers::kWithAttention;
  return tensors;
}
template <size_t kSize>
constexpr std::array<HfTensor, kSize> InOtherLayers(std::array<HfTensor, kSize> tensors) {
  for (HfTensor& tensor : tensors) tensor.layers = InLayers::kWithoutAttention;
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

// The tensors of most classes with experts.
inline constexpr std::array<HfTensor, 4> kHfExperts = {
    HfOfExperts("model.layers.{}.mlp.gate.weight", kRouterName, Extent::kExperts, Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.experts.{}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.mlp.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.mlp.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight",
                Extent::kDim, Extent::kExpertFfn, ExpertForm::kEach),
};

// The experts alone, for classes with another router.
inline constexpr std::array kHfEachExpert = {kHfExperts[1], kHfExperts[2], kHfExperts[3]};

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

// A shared expert with a gate.
inline constexpr std::array<HfTensor, 4> kHfGatedSharedExpert = {
    HfOfExperts("model.layers.{}.mlp.shared_expert_gate.weight", "blk.{}.ffn_gate_inp_shexp.weight",
                Extent::kOne, Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.shared_expert.gate_proj.weight",
                "blk.{}.ffn_gate_shexp.weight", Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight",
                Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.shared_expert.down_proj.weight",
                "blk.{}.ffn_down_shexp.weight", Extent::kDim, Extent::kSharedFfn),
};

// One without a gate, under the same names.
inline constexpr std::array kHfSharedExpert = {kHfGatedSharedExpert[1], kHfGatedSharedExpert[2],
                                               kHfGatedSharedExpert[3]};

// The experts of Granite. The folder has gate and up in one tensor, other engines read two.
inline constexpr std::array<HfTensor, 4> kHfGraniteExperts = {
    HfOfExperts("model.layers.{}.block_sparse_moe.router.layer.weight", kRouterName,
                Extent::kExperts, Extent::kDim),
    HfOfExperts("model.layers.{}.block_sparse_moe.input_linear.weight",
                "blk.{}.ffn_gate_exps.weight", Extent::kExpertFfn, Extent::kDim,
                ExpertForm::kStacked, RowPart::kFirstHalf),
    HfOfExperts("model.layers.{}.block_sparse_moe.input_linear.weight", "blk.{}.ffn_up_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kStacked, RowPart::kSecondHalf),
    HfOfExperts("model.layers.{}.block_sparse_moe.output_linear.weight",
                "blk.{}.ffn_down_exps.weight", Extent::kDim, Extent::kExpertFfn,
                ExpertForm::kStacked),
};

inline constexpr std::array<HfTensor, 3> kHfGraniteSharedExpert = {
    HfOfExperts("model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_gate_shexp.weight",
                Extent::kSharedFfn, Extent::kDim, ExpertForm::kNone, RowPart::kFirstHalf),
    HfOfExperts("model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_up_shexp.weight",
                Extent::kSharedFfn, Extent::kDim, ExpertForm::kNone, RowPart::kSecondHalf),
    HfOfExperts("model.layers.{}.shared_mlp.output_linear.weight", "blk.{}.ffn_down_shexp.weight",
                Extent::kDim, Extent::kSharedFfn),
};

inline constexpr std::array<HfTensor, 1> kHfFusedGateUp = {
    HfMatrix("model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight", Extent::kTwoFfn,
             Extent::kDim),
};

// The first matrix of a feed-forward without gates.
inline constexpr std::array kHfPlainUp = {kHfSeparateGateUp[2], kHfSeparateGateUp[3]};

inline constexpr std::array<HfTensor, 2> kHfDown = {
    HfMatrix("model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
    HfBias("model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", Extent::kDim),
};

// Gated delta nets, as Qwen3-Next has them and as its successors do; what both have of them, and of
// the attention with gates between them.
inline constexpr std::array<HfTensor, 4> kHfDeltaGroups = {{
    {.hf_name = "model.layers.{}.linear_attn.in_proj_qkvz.weight",
     .gguf_name = "blk.{}.attn_qkv.weight",
     .rows = Extent::kDeltaQkv,
     .columns = Extent::kDim,
     .order = RowOrder::kDeltaQkv},
    {.hf_name = "model.layers.{}.linear_attn.in_proj_qkvz.weight",
     .gguf_name = "blk.{}.attn_gate.weight",
     .rows = Extent::kDeltaValues,
     .columns = Extent::kDim,
     .order = RowOrder::kDeltaGates},
    HfMatrix("model.layers.{}.linear_attn.in_proj_ba.weight", "blk.{}.ssm_ba.weight",
             Extent::kTwoDeltaHeads, Extent::kDim),
    HfMatrix("model.layers.{}.linear_attn.conv1d.weight", "blk.{}.ssm_conv1d.weight",
             Extent::kDeltaQkv, Extent::kConvTaps),
}};
inline constexpr std::array<HfTensor, 4> kHfDeltaRest = {{
    {.hf_name = "model.layers.{}.linear_attn.dt_bias",
     .gguf_name = "blk.{}.ssm_dt.bias",
     .rows = Extent::kDeltaHeads},
    {.hf_name = "model.layers.{}.linear_attn.A_log",
     .gguf_name = "blk.{}.ssm_a",
     .rows = Extent::kDeltaHeads,
     .values = Values::kMinusExp},
    {.hf_name = "model.layers.{}.linear_attn.norm.weight",
     .gguf_name = "blk.{}.ssm_norm.weight",
     .rows = Extent::kDeltaHeadDim},
    HfMatrix("model.layers.{}.linear_attn.out_proj.weight", "blk.{}.ssm_out.weight", Extent::kDim,
             Extent::kDeltaValues),
}};
inline constexpr std::array<HfTensor, 8> kHfTiledDelta = {{
    {.hf_name = "model.layers.{}.linear_attn.in_proj_qkv.weight",
     .gguf_name = "blk.{}.attn_qkv.weight",
     .rows = Extent::kDeltaQkv,
     .columns = Extent::kDim,
     .order = RowOrder::kTiledQkv},
    {.hf_name = "model.layers.{}.linear_attn.in_proj_z.weight",
     .gguf_name = "blk.{}.attn_gate.weight",
     .rows = Extent::kDeltaValues,
     .columns = Extent::kDim,
     .order = RowOrder::kTiledValues},
    {.hf_name = "model.layers.{}.linear_attn.in_proj_b.weight",
     .gguf_name = "blk.{}.ssm_beta.weight",
     .rows = Extent::kDeltaHeads,
     .columns = Extent::kDim,
     .order = RowOrder::kTiledHeads},
    {.hf_name = "model.layers.{}.linear_attn.in_proj_a.weight",
     .gguf_name = "blk.{}.ssm_alpha.weight",
     .rows = Extent::kDeltaHeads,
     .columns = Extent::kDim,
     .order = RowOrder::kTiledHeads},
    {.hf_name = "model.layers.{}.linear_attn.conv1d.weight",
     .gguf_name = "blk.{}.ssm_conv1d.weight",
     .rows = Extent::kDeltaQkv,
     .columns = Extent::kConvTaps,
     .order = RowOrder::kTiledQkv},
    {.hf_name = "model.layers.{}.linear_attn.dt_bias",
     .gguf_name = "blk.{}.ssm_dt.bias",
     .rows = Extent::kDeltaHeads,
     .order = RowOrder::kTiledHeads},
    {.hf_name = "model.layers.{}.linear_attn.A_log",
     .gguf_name = "blk.{}.ssm_a",
     .rows = Extent::kDeltaHeads,
     .order = RowOrder::kTiledHeads,
     .values = Values::kMinusExp},
    {.hf_name = "model.layers.{}.linear_attn.out_proj.weight",
     .gguf_name = "blk.{}.ssm_out.weight",
     .rows = Extent::kDim,
     .columns = Extent::kDeltaValues,
     .order = RowOrder::kTiledColumns},
}};
inline constexpr auto kHfDeltaNorm = HfNorm("model.layers.{}.linear_attn.norm.weight",
                                            "blk.{}.ssm_norm.weight", Extent::kDeltaHeadDim);
inline constexpr std::array<HfTensor, 5> kHfGatedAttention = {
    HfMatrix("model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", Extent::kTwoQRows,
             Extent::kDim),
    HfMatrix("model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", Extent::kKvRows,
             Extent::kDim),
    HfMatrix("model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", Extent::kKvRows,
             Extent::kDim),
    HfMatrix("model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kQRows),
    {.hf_name = "model.layers.{}.self_attn.q_norm.weight",
     .gguf_name = "blk.{}.attn_q_norm.weight",
     .rows = Extent::kHeadDim},
};
// Ends, norms and attention, all of whose norms multiply by 1 + weight.
inline constexpr auto kHfAroundDelta =
    WithNormsPlusOne(Join(kHfEnds, kHfNormBeforeAttention, InAttentionLayers(kHfGatedAttention),
                          InAttentionLayers(HfNorm("model.layers.{}.self_attn.k_norm.weight",
                                                   "blk.{}.attn_k_norm.weight", Extent::kHeadDim)),
                          HfNorm("model.layers.{}.post_attention_layernorm.weight",
                                 "blk.{}.post_attention_norm.weight")));

// Mamba 2, as the classes with attention beside or between it have it.
inline constexpr std::array<HfTensor, 10> kHfMamba2 = {{
    HfMatrix("model.layers.{}.mamba.in_proj.weight", "blk.{}.ssm_in.weight", Extent::kMambaIn,
             Extent::kDim),
    HfBias("model.layers.{}.mamba.in_proj.bias", "blk.{}.ssm_in.bias", Extent::kMambaIn),
    HfMatrix("model.layers.{}.mamba.conv1d.weight", "blk.{}.ssm_conv1d.weight", Extent::kMambaConv,
             Extent::kConvTaps),
    HfBias("model.layers.{}.mamba.conv1d.bias", "blk.{}.ssm_conv1d.bias", Extent::kMambaConv),
    {.hf_name = "model.layers.{}.mamba.dt_bias",
     .gguf_name = "blk.{}.ssm_dt.bias",
     .rows = Extent::kMambaHeads},
    {.hf_name = "model.layers.{}.mamba.A_log",
     .gguf_name = "blk.{}.ssm_a",
     .rows = Extent::kMambaHeads,
     .columns = Extent::kOne,
     .values = Values::kMinusExp},
    HfMatrix("model.layers.{}.mamba.D", "blk.{}.ssm_d", Extent::kMambaHeads, Extent::kOne),
    HfMatrix("model.layers.{}.mamba.norm.weight", "blk.{}.ssm_norm.weight", Extent::kMambaGroups,
             Extent::kMambaGroupCols),
    HfMatrix("model.layers.{}.mamba.out_proj.weight", "blk.{}.ssm_out.weight", Extent::kDim,
             Extent::kMambaInner),
    HfBias("model.layers.{}.mamba.out_proj.bias", "blk.{}.ssm_out.bias", Extent::kDim),
}};

// Mamba 2, under the names of the classes of Mamba 2 alone and of Nemotron-H.
inline constexpr std::array<HfTensor, 10> kHfMixerMamba2 = {{
    HfMatrix("backbone.layers.{}.mixer.in_proj.weight", "blk.{}.ssm_in.weight", Extent::kMambaIn,
             Extent::kDim),
    HfBias("backbone.layers.{}.mixer.in_proj.bias", "blk.{}.ssm_in.bias", Extent::kMambaIn),
    HfMatrix("backbone.layers.{}.mixer.conv1d.weight", "blk.{}.ssm_conv1d.weight",
             Extent::kMambaConv, Extent::kConvTaps),
    HfBias("backbone.layers.{}.mixer.conv1d.bias", "blk.{}.ssm_conv1d.bias", Extent::kMambaConv),
    {.hf_name = "backbone.layers.{}.mixer.dt_bias",
     .gguf_name = "blk.{}.ssm_dt.bias",
     .rows = Extent::kMambaHeads},
    {.hf_name = "backbone.layers.{}.mixer.A_log",
     .gguf_name = "blk.{}.ssm_a",
     .rows = Extent::kMambaHeads,
     .columns = Extent::kOne,
     .values = Values::kMinusExp},
    HfMatrix("backbone.layers.{}.mixer.D", "blk.{}.ssm_d", Extent::kMambaHeads, Extent::kOne),
    HfMatrix("backbone.layers.{}.mixer.norm.weight", "blk.{}.ssm_norm.weight", Extent::kMambaGroups,
             Extent::kMambaGroupCols),
    HfMatrix("backbone.layers.{}.mixer.out_proj.weight", "blk.{}.ssm_out.weight", Extent::kDim,
             Extent::kMambaInner),
    HfBias("backbone.layers.{}.mixer.out_proj.bias", "blk.{}.ssm_out.bias", Extent::kDim),
}};

}  // namespace kvant::arch
