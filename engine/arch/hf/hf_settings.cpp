#include "engine/arch/hf/hf_settings.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"
#include "engine/limits.h"

namespace kvant::arch {
namespace {

// A sigmoid in expert_gating_func, as llama.cpp numbers the gates.
constexpr uint32_t kSigmoidGating = 2;

// Whether each layer of "layer_types" has no window; empty if the file has none.
Result<std::vector<bool>> ReadLayerTypes(const JsonObject& config, int64_t layers) {
  std::vector<bool> is_full;
  const formats::Json* types = config.Find("layer_types");
  if (types == nullptr) return is_full;
  const auto count = static_cast<size_t>(layers);
  if (!types->is_array() || types->size() != count) {
    return config.Wrong("layer_types", fmt::format("an array of {} texts", count));
  }
  for (const formats::Json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") {
      return config.Wrong("layer_types", "full_attention or sliding_attention for each layer");
    }
    is_full.push_back(type == "full_attention");
  }
  return is_full;
}

bool FollowsPattern(const std::vector<bool>& is_full, int64_t pattern) {
  for (size_t i = 0; i < is_full.size(); ++i) {
    if (is_full[i] != ((static_cast<int64_t>(i) + 1) % pattern == 0)) return false;
  }
  return true;
}

Result<int64_t> ReadPattern(const JsonObject& config, int64_t layers, int64_t usual) {
  KVANT_ASSIGN(const std::vector<bool> is_full, ReadLayerTypes(config, layers));
  if (is_full.empty()) {
    KVANT_ASSIGN(const auto pattern, config.Integer("sliding_window_pattern", INT32_MAX));
    if (pattern == 0) return config.Wrong("sliding_window_pattern", "at least 1");
    return pattern.value_or(usual);
  }
  if (FollowsPattern(is_full, usual)) return usual;
  for (int64_t pattern = 1; pattern <= layers; ++pattern) {
    if (FollowsPattern(is_full, pattern)) return pattern;
  }
  return MakeError(ErrorCode::kNotSupported,
                   "{}: expected full_attention in every n-th layer and sliding_attention in the "
                   "others",
                   config.Where("layer_types"));
}

}  // namespace

Status AddAlternatingWindow(const JsonObject& config, const HfShape& shape, int64_t usual_pattern,
                            Parameters& out) {
  KVANT_ASSIGN(const int64_t window, config.Count("sliding_window", INT32_MAX));
  out.writer->AddU32(out.Key("attention.sliding_window"), static_cast<uint32_t>(window));
  KVANT_ASSIGN(const int64_t pattern, ReadPattern(config, shape.layers, usual_pattern));
  if (pattern != usual_pattern) {
    out.writer->AddU32(out.Key("attention.sliding_window_pattern"), static_cast<uint32_t>(pattern));
  }
  return {};
}

Status AddQueryScale(const JsonObject& config, const HfShape& shape, int64_t layers_by_width,
                     Parameters& out) {
  constexpr const char* kKey = "query_pre_attn_scalar";
  KVANT_ASSIGN(const auto scalar, config.Number(kKey));
  if (!scalar || !(*scalar > 0)) return config.Wrong(kKey, "a positive number");
  const double assumed = shape.layers == layers_by_width
                             ? static_cast<double>(shape.dim) / static_cast<double>(shape.heads)
                             : static_cast<double>(shape.head_dim);
  if (*scalar == assumed) return {};
  out.writer->AddF32(out.Key("attention.scale"), static_cast<float>(1.0 / std::sqrt(*scalar)));
  return {};
}

Status AddPositive(const JsonObject& config, std::string_view hf_key, std::string_view key,
                   Parameters& out) {
  KVANT_ASSIGN(const auto value, config.Number(hf_key));
  if (!value || !(*value > 0)) return config.Wrong(hf_key, "a positive number");
  out.writer->AddF32(out.Key(key), static_cast<float>(*value));
  return {};
}

Status AddExpertWeights(const JsonObject& config, ExpertWeights absent, ExpertWeights assumed,
                        Parameters& out) {
  KVANT_ASSIGN(const auto given, config.Bool("norm_topk_prob"));
  const bool normalized = given.value_or(absent == ExpertWeights::kNormalized);
  // Other engines do not assume that weights are normalized.
  if (normalized || assumed == ExpertWeights::kNormalized) {
    out.writer->AddBool(out.Key("expert_weights_norm"), normalized);
  }
  KVANT_ASSIGN(const auto scale, config.Number("routed_scaling_factor"));
  if (!scale || *scale == 1.0) return {};
  if (!(*scale > 0)) return config.Wrong("routed_scaling_factor", "a positive number");
  out.writer->AddF32(out.Key("expert_weights_scale"), static_cast<float>(*scale));
  return {};
}

Status AddSigmoidRouter(const JsonObject& config, Parameters& out) {
  KVANT_ASSIGN(const auto groups, config.Integer("n_group", INT32_MAX));
  if (groups.value_or(1) > 1) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: {} groups of experts are not supported, "
                     "expected 1",
                     config.Where("n_group"), *groups);
  }
  out.writer->AddU32(out.Key("expert_gating_func"), kSigmoidGating);
  KVANT_ASSIGN(const auto dense, config.Integer("first_k_dense_replace", kLayersMax));
  out.writer->AddU32(out.Key("leading_dense_block_count"),
                     static_cast<uint32_t>(dense.value_or(0)));
  return {};
}

Status RefuseWindows(const JsonObject& config) {
  const formats::Json* types = config.Find("layer_types");
  if (types == nullptr || !types->is_array()) return {};
  for (const formats::Json& type : *types) {
    if (type == "full_attention") continue;
    return MakeError(ErrorCode::kNotSupported,
                     "{}: expected full_attention in every layer of this class",
                     config.Where("layer_types"));
  }
  return {};
}

Status AddMultipliers(const JsonObject& config, Parameters& out) {
  KVANT_TRY(AddPositive(config, "embedding_multiplier", "embedding_scale", out));
  KVANT_TRY(AddPositive(config, "residual_multiplier", "residual_scale", out));
  KVANT_TRY(AddPositive(config, "attention_multiplier", "attention.scale", out));
  KVANT_TRY(AddPositive(config, "logits_scaling", "logit_scale", out));
  return {};
}

Status AddWindowIfAny(const JsonObject& config, Parameters& out) {
  KVANT_ASSIGN(const auto window, config.Integer("sliding_window", INT32_MAX));
  if (window.value_or(0) > 0) {
    out.writer->AddU32(out.Key("attention.sliding_window"), static_cast<uint32_t>(*window));
  }
  return {};
}

Result<int64_t> AddPartialRotation(const JsonObject& config, std::string_view key, double otherwise,
                                   const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto given, config.Number(key));
  const double share = given.value_or(otherwise);
  if (!(share > 0 && share <= 1)) return config.Wrong(key, "0 to 1");
  const auto n_rot = static_cast<int64_t>(share * static_cast<double>(shape.head_dim));
  if (n_rot < 2 || n_rot % 2 != 0) {
    return config.Wrong(
        key, fmt::format("an even number of the {} dimensions of a head", shape.head_dim));
  }
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(n_rot));
  return n_rot;
}

Status RefuseNumber(const JsonObject& config, std::string_view key) {
  if (config.Find(key) == nullptr) return {};
  return MakeError(ErrorCode::kNotSupported, "{} is not supported for this class",
                   config.Where(key));
}

Status RefuseTrue(const JsonObject& config, std::string_view key) {
  KVANT_ASSIGN(const auto value, config.Bool(key));
  if (!value.value_or(false)) return {};
  return MakeError(ErrorCode::kNotSupported, "{}: true is not supported", config.Where(key));
}

}  // namespace kvant::arch
