// Tensors and sizes of Nemotron-H's class, with experts or without: layers of one sublayer each.
//
// Errors: kCorrupt for settings that make no sense, kNotSupported for what the GGUF architecture
// cannot express. Thread-safety: pure.
#pragma once

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

// Whether some layer of the model has experts.
bool HasNemotronExperts(const JsonObject& config);

// Reads what each layer is, by "hybrid_override_pattern" or "layers_block_type", and the sizes of
// Mamba 2.
Status ReadNemotronLayers(const JsonObject& config, HfShape& shape);

// Writes what readers need to know of Mamba 2.
Status AddNemotronParameters(const JsonObject& config, const HfShape& shape, Parameters& out);

inline constexpr std::string_view kNemotronClasses[] = {"NemotronHForCausalLM"};
inline constexpr std::string_view kNemotronActivations[] = {"relu2"};

// Published folders have the first beginning, folders that transformers 5 writes the second.
inline constexpr std::string_view kNemotronPrefix = "backbone.";
inline constexpr std::string_view kNemotronOtherPrefix = "model.";

constexpr HfFamily NemotronFamily(std::string_view arch, std::span<const HfTensor> tensors) {
  return {.classes = kNemotronClasses,
          .arch = arch,
          .activation = {.key = "mlp_hidden_act", .names = kNemotronActivations},
          .keys = {.layers = ""},
          .epsilon = {.key = "layer_norm_epsilon"},
          .finish_shape = ReadNemotronLayers,
          .optional_prefix = kNemotronPrefix,
          .other_prefix = kNemotronOtherPrefix,
          .rope_base = 0,
          .tensors = tensors,
          .add_parameters = AddNemotronParameters};
}

inline constexpr auto kHfNemotronEnds =
    Join(HfEmbedding("backbone.embeddings.weight"),
         HfNorm("backbone.norm_f.weight", "output_norm.weight"), HfOutput("lm_head.weight"),
         HfNorm("backbone.layers.{}.norm.weight", "blk.{}.attn_norm.weight"));

inline constexpr std::array<HfTensor, 5> kHfNemotronAttention = {
    HfMatrix("backbone.layers.{}.mixer.q_proj.weight", "blk.{}.attn_q.weight", Extent::kQRows,
             Extent::kDim),
    HfMatrix("backbone.layers.{}.mixer.k_proj.weight", "blk.{}.attn_k.weight", Extent::kKvRows,
             Extent::kDim),
    HfMatrix("backbone.layers.{}.mixer.v_proj.weight", "blk.{}.attn_v.weight", Extent::kKvRows,
             Extent::kDim),
    HfMatrix("backbone.layers.{}.mixer.o_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kQRows),
    HfBias("backbone.layers.{}.mixer.o_proj.bias", "blk.{}.attn_output.bias", Extent::kDim),
};

inline constexpr std::array<HfTensor, 4> kHfNemotronFfn = {
    HfMatrix("backbone.layers.{}.mixer.up_proj.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfBias("backbone.layers.{}.mixer.up_proj.bias", "blk.{}.ffn_up.bias", Extent::kFfn),
    HfMatrix("backbone.layers.{}.mixer.down_proj.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
    HfBias("backbone.layers.{}.mixer.down_proj.bias", "blk.{}.ffn_down.bias", Extent::kDim),
};

// The feed-forward of layers that are one without experts.
template <size_t kSize>
constexpr std::array<HfTensor, kSize> InFfnLayers(std::array<HfTensor, kSize> tensors) {
  for (HfTensor& tensor : tensors) tensor.layers = InLayers::kFfnWithoutExperts;
  return tensors;
}

inline constexpr auto kHfNemotronLayers =
    Join(InAttentionLayers(kHfNemotronAttention), InOtherLayers(kHfMixerMamba2),
         InFfnLayers(kHfNemotronFfn));

}  // namespace kvant::arch
