// Settings of config.json that several classes share, as metadata.
//
// Errors: kCorrupt for settings that make no sense, kNotSupported for what the GGUF architecture
// cannot express; both name the file and the key. Thread-safety: pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/rope_settings.h"
#include "formats/json_object.h"

namespace kvant::arch {

// Writes attention.sliding_window, and attention.sliding_window_pattern where it is not
// `usual_pattern`: a number n that gives every n-th layer no window, by "layer_types" or
// "sliding_window_pattern".
Status AddAlternatingWindow(const JsonObject& config, const HfShape& shape, int64_t usual_pattern,
                            Parameters& out);

// Reads which layers have a window from "layer_types"; where the key is absent, all but every
// `every`-th.
Result<std::vector<bool>> ReadWindowLayers(const JsonObject& config, int64_t layers, int64_t every);

// Writes attention.sliding_window, and attention.sliding_window_pattern with a flag for each layer.
Status AddWindowFlags(const JsonObject& config, const std::vector<bool>& windows, Parameters& out);

// Writes attention.scale for a model that multiplies queries and keys by
// 1 / sqrt(query_pre_attn_scalar), unless that number is the one that readers assume: the head
// size, but dim / heads in a model of `layers_by_width` layers.
Status AddQueryScale(const JsonObject& config, const HfShape& shape, int64_t layers_by_width,
                     Parameters& out);

// Writes a positive number, which config.json must have, under a key of the architecture.
Status AddPositive(const JsonObject& config, std::string_view hf_key, std::string_view key,
                   Parameters& out);

// Says whether the weights of a token's experts are normalized.
enum class ExpertWeights : uint8_t { kAsTheyAre, kNormalized };

// Writes expert_weights_norm by "norm_topk_prob", unless weights are as they are and readers of the
// architecture assume so (`assumed`); `absent` is what the class does without the key. Writes
// expert_weights_scale by "routed_scaling_factor".
Status AddExpertWeights(const JsonObject& config, ExpertWeights absent, ExpertWeights assumed,
                        Parameters& out);

// Writes what readers of other engines need to know of a sigmoid router: expert_gating_func, and
// leading_dense_block_count by "first_k_dense_replace". kNotSupported for experts in groups.
Status AddSigmoidRouter(const JsonObject& config, Parameters& out);

// Writes that the router is a sigmoid, and how many layers at the beginning have no experts.
void AddSigmoidGating(int64_t dense_layers, Parameters& out);

// Writes the groups of experts, by "n_group" and "topk_group".
Status AddExpertGroups(const JsonObject& config, Parameters& out);

// How many layers at the beginning have no experts, by "mlp_layer_types"; `otherwise` where the key
// is absent.
Result<int64_t> CountLeadingDense(const JsonObject& config, int64_t layers, int64_t otherwise);

// Writes the bounds of a list that has null or 0 for layers without one; nothing without the list.
Status AddLayerBounds(const JsonObject& config, std::string_view name, std::string_view key,
                      int64_t layers, Parameters& out);

// Writes the sizes of keys and values of a head, which differ in number from layer to layer.
void AddHeadDim(const HfShape& shape, Parameters& out);

// kNotSupported for positions that are stretched.
Status RefuseRopeScaling(const JsonObject& config);

// kNotSupported if "layer_types" gives some layer a window.
Status RefuseWindows(const JsonObject& config);
// Writes the scales of embedding, residuals, attention and logits of Granite's classes.
Status AddMultipliers(const JsonObject& config, Parameters& out);

// The words of "layer_types" for layers with attention and for recurrent layers, and those that
// older folders have.
struct LayerTypes {
  std::string_view attention = "full_attention";
  std::string_view other;
  std::string_view older_attention = attention;
  std::string_view older_other = other;
};

// Reads "layer_types", where a layer is one or the other. Where the key is absent, "every"
// n-th layer has attention; 0: the key must be there.
Status ReadAttentionLayers(const JsonObject& config, const LayerTypes& names, int64_t every,
                           HfShape& shape);
// Reads which layers of LFM2 have attention, and the rows that the convolutions of the others see.
Status ReadConvLayers(const JsonObject& config, HfShape& shape);

// Reads the layers and the heads of classes with gated delta nets, and writes what readers need of
// them and of the rotation of a share of each head.
Status ReadDeltaLayers(const JsonObject& config, HfShape& shape);
Status ReadDeltaLayers(const JsonObject& config, const LayerTypes& names, HfShape& shape);
Status AddDeltaParameters(const JsonObject& config, const HfShape& shape, Parameters& out);
inline constexpr double kDeltaRopeShare = 0.25;  // HfFamily::rope_share of these classes
// Writes the sections of pairs that are turned by the time and by the place in an image, which are
// one and the same in texts; readers of other engines need them. There are three or four.
// `sections`: of a class without the setting `name`.
Status AddRopeSections(const RopeSettings& rope, std::vector<int32_t> sections, Parameters& out,
                       std::string_view name = "mrope_section");
// Writes also these sections.
Status AddSectionedDelta(const JsonObject& config, const HfShape& shape, Parameters& out);

// The keys of Mamba 2's heads. ReadMamba reads the heads by them, AddMamba writes the ssm keys.
// kNotSupported for limits of the step. Where `head_dim` is empty, the caller sets the dimension of
// heads.
struct HfMambaKeys {
  std::string_view heads;
  std::string_view head_dim;
  std::string_view state_dim;
  std::string_view groups;
  std::string_view taps;
};
Status ReadMamba(const JsonObject& config, const HfMambaKeys& keys, HfShape& shape);
Status AddMamba(const JsonObject& config, const HfShape& shape, Parameters& out);

// Writes attention.sliding_window if the class has a window.
Status AddWindowIfAny(const JsonObject& config, Parameters& out);

// kNotSupported if the key holds a number, or true.
Status RefuseNumber(const JsonObject& config, std::string_view key);
Status RefuseTrue(const JsonObject& config, std::string_view key);

}  // namespace kvant::arch
