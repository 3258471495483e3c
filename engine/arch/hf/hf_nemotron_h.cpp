#include "engine/arch/hf/hf_nemotron_h.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/limits.h"

namespace kvant::arch {
namespace {

constexpr std::string_view kPattern = "hybrid_override_pattern";
constexpr std::string_view kTypes = "layers_block_type";

enum class LayerKind : uint8_t { kMamba, kAttention, kFfn, kExperts };

// A letter of the pattern, and the list's word for the same kind of layer.
struct KindNames {
  char letter;
  std::string_view name;
  std::string_view older_name;
  LayerKind kind;
};
constexpr KindNames kKinds[] = {{'M', "linear_attention", "mamba", LayerKind::kMamba},
                                {'*', "full_attention", "attention", LayerKind::kAttention},
                                {'-', "mlp", "mlp", LayerKind::kFfn},
                                {'E', "moe", "moe", LayerKind::kExperts}};

Result<std::vector<LayerKind>> ReadPattern(const JsonObject& config, const std::string& pattern) {
  std::vector<LayerKind> kinds;
  for (const char letter : pattern) {
    const auto* row = std::ranges::find(kKinds, letter, &KindNames::letter);
    if (row == std::end(kKinds)) return config.Wrong(kPattern, "the letters M, *, - and E");
    kinds.push_back(row->kind);
  }
  return kinds;
}

Result<std::vector<LayerKind>> ReadTypes(const JsonObject& config) {
  const formats::Json* types = config.Find(kTypes);
  if (types == nullptr || !types->is_array()) {
    return config.Wrong(kTypes, "an array with a text for each layer");
  }
  std::vector<LayerKind> kinds;
  for (const formats::Json& type : *types) {
    const auto* row = std::ranges::find_if(kKinds, [&type](const KindNames& names) {
      return type == names.name || type == names.older_name;
    });
    if (row == std::end(kKinds)) {
      return config.Wrong(kTypes, "linear_attention, full_attention, mlp or moe for each layer");
    }
    kinds.push_back(row->kind);
  }
  return kinds;
}

Result<std::vector<LayerKind>> ReadKinds(const JsonObject& config) {
  KVANT_ASSIGN(const auto pattern, config.String(kPattern));
  KVANT_ASSIGN(auto kinds, pattern ? ReadPattern(config, *pattern) : ReadTypes(config));
  const std::string_view key = pattern ? kPattern : kTypes;
  if (kinds.empty() || std::ssize(kinds) > int64_t{kLayersMax}) {
    return config.Wrong(key, fmt::format("1 to {} layers", kLayersMax));
  }
  if (std::ranges::find(kinds, LayerKind::kAttention) == kinds.end()) {
    return config.Wrong(key, "a layer with attention");
  }
  return kinds;
}

}  // namespace

bool HasNemotronExperts(const JsonObject& config) {
  const auto kinds = ReadKinds(config);
  return kinds.ok() && std::ranges::find(*kinds, LayerKind::kExperts) != kinds->end();
}

Status ReadNemotronLayers(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto kinds, ReadKinds(config));
  shape.layers = std::ssize(kinds);
  int64_t expert_width = 0;
  if (HasNemotronExperts(config)) {
    KVANT_ASSIGN(expert_width, config.Count("moe_intermediate_size", kDimMax));
    KVANT_ASSIGN(const auto latent, config.Integer("moe_latent_size", kDimMax));
    shape.expert_latent = latent.value_or(0);
  }
  for (const LayerKind kind : kinds) {
    shape.attention_layers.push_back(kind == LayerKind::kAttention);
    shape.ffn_widths.push_back(kind == LayerKind::kFfn       ? shape.ffn
                               : kind == LayerKind::kExperts ? expert_width
                                                             : 0);
  }
  return ReadMamba(config,
                   {.heads = "mamba_num_heads",
                    .head_dim = "mamba_head_dim",
                    .state_dim = "ssm_state_size",
                    .groups = "n_groups",
                    .taps = "conv_kernel"},
                   shape);
}

Status AddNemotronParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseNumber(config, "sliding_window"));
  // Other engines need it for layers that predict further tokens.
  KVANT_TRY(AddPositive(config, "layer_norm_epsilon", "attention.layer_norm_epsilon", out));
  return AddMamba(config, shape, out);
}

}  // namespace kvant::arch
