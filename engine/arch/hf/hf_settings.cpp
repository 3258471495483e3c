#include "engine/arch/hf/hf_settings.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/rope_scaling.h"
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

Result<std::vector<bool>> ReadWindowLayers(const JsonObject& config, int64_t layers,
                                           int64_t every) {
  KVANT_ASSIGN(const std::vector<bool> is_full, ReadLayerTypes(config, layers));
  std::vector<bool> windows;
  for (int64_t i = 0; i < layers; ++i) {
    windows.push_back(is_full.empty() ? (i + 1) % every != 0 : !is_full[static_cast<size_t>(i)]);
  }
  return windows;
}

Status AddWindowFlags(const JsonObject& config, const std::vector<bool>& windows, Parameters& out) {
  KVANT_ASSIGN(const int64_t window, config.Count("sliding_window", INT32_MAX));
  out.writer->AddU32(out.Key("attention.sliding_window"), static_cast<uint32_t>(window));
  out.writer->AddBools(out.Key("attention.sliding_window_pattern"), windows);
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
  KVANT_ASSIGN(const auto dense, config.Integer("first_k_dense_replace", kLayersMax));
  AddSigmoidGating(dense.value_or(0), out);
  return {};
}

void AddSigmoidGating(int64_t dense_layers, Parameters& out) {
  out.writer->AddU32(out.Key("expert_gating_func"), kSigmoidGating);
  out.writer->AddU32(out.Key("leading_dense_block_count"), static_cast<uint32_t>(dense_layers));
}

Status AddExpertGroups(const JsonObject& config, Parameters& out) {
  KVANT_ASSIGN(const auto groups, config.Integer("n_group", kExpertsMax));
  if (groups.value_or(1) <= 1) return {};
  KVANT_ASSIGN(const int64_t used, config.Count("topk_group", *groups));
  out.writer->AddU32(out.Key("expert_group_count"), static_cast<uint32_t>(*groups));
  out.writer->AddU32(out.Key("expert_group_used_count"), static_cast<uint32_t>(used));
  return {};
}

Result<int64_t> CountLeadingDense(const JsonObject& config, int64_t layers, int64_t otherwise) {
  const formats::Json* types = config.Find("mlp_layer_types");
  if (types == nullptr) return otherwise;
  if (!types->is_array() || std::ssize(*types) < layers) {
    return config.Wrong("mlp_layer_types", fmt::format("an array of {} texts", layers));
  }
  int64_t dense = 0;
  while (dense < layers && (*types)[static_cast<size_t>(dense)] == "dense") ++dense;
  return dense;
}

Status AddLayerBounds(const JsonObject& config, std::string_view name, std::string_view key,
                      int64_t layers, Parameters& out) {
  const formats::Json* list = config.Find(name);
  if (list == nullptr) return {};
  if (!list->is_array() || std::ssize(*list) < layers) {
    return config.Wrong(name, fmt::format("an array of {} numbers", layers));
  }
  std::vector<float> bounds;
  for (int64_t i = 0; i < layers; ++i) {
    const formats::Json& bound = (*list)[static_cast<size_t>(i)];
    if (!bound.is_null() && !bound.is_number()) return config.Wrong(name, "numbers");
    bounds.push_back(bound.is_null() ? 0.0f : bound.get<float>());
  }
  out.writer->AddF32s(out.Key(key), bounds);
  return {};
}

void AddHeadDim(const HfShape& shape, Parameters& out) {
  if (shape.layer_sizes.empty()) return;  // written for all families
  for (const char* key : {"attention.key_length", "attention.value_length"}) {
    out.writer->AddU32(out.Key(key), static_cast<uint32_t>(shape.head_dim));
  }
}

Status RefuseRopeScaling(const JsonObject& config) {
  KVANT_ASSIGN(const auto scaling, ReadRopeScaling(config));
  return scaling ? scaling->settings.UnsupportedType("default") : Status();
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

Status ReadAttentionLayers(const JsonObject& config, const LayerTypes& names, int64_t every,
                           HfShape& shape) {
  const formats::Json* types = config.Find("layer_types");
  const auto count = static_cast<size_t>(shape.layers);
  shape.attention_layers.assign(count, false);
  if (types == nullptr && every > 0) {
    for (size_t i = 0; i < count; ++i) {
      shape.attention_layers[i] = (static_cast<int64_t>(i) + 1) % every == 0;
    }
    return {};
  }
  if (types == nullptr || !types->is_array() || types->size() != count) {
    return config.Wrong("layer_types", fmt::format("an array of {} texts", count));
  }
  for (size_t i = 0; i < count; ++i) {
    const formats::Json& type = (*types)[i];
    const bool has_attention = type == names.attention || type == names.older_attention;
    if (!has_attention && type != names.other && type != names.older_other) {
      return config.Wrong("layer_types",
                          fmt::format("{} or {} for each layer", names.attention, names.other));
    }
    shape.attention_layers[i] = has_attention;
  }
  return {};
}

Status ReadConvLayers(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto taps, config.Integer("conv_L_cache", kConvTapsMax));
  shape.conv_taps = taps.value_or(3);
  if (shape.conv_taps < 2) return config.Wrong("conv_L_cache", "at least 2");
  KVANT_ASSIGN(const auto full, config.Numbers("full_attn_idxs"));
  if (config.Find("layer_types") != nullptr || !full) {
    return ReadAttentionLayers(config, {.other = "conv"}, 0, shape);
  }
  shape.attention_layers.assign(static_cast<size_t>(shape.layers), false);
  for (const float index : *full) {
    if (!(index >= 0 && index < static_cast<float>(shape.layers))) {
      return config.Wrong("full_attn_idxs", fmt::format("numbers of the {} layers", shape.layers));
    }
    shape.attention_layers[static_cast<size_t>(index)] = true;
  }
  return {};
}

Status ReadDeltaLayers(const JsonObject& config, HfShape& shape) {
  return ReadDeltaLayers(config, {.other = "linear_attention"}, shape);
}

Status ReadDeltaLayers(const JsonObject& config, const LayerTypes& names, HfShape& shape) {
  KVANT_ASSIGN(const auto given, config.Integer("full_attention_interval", kLayersMax));
  const int64_t interval = given.value_or(4);
  if (interval < 1) return config.Wrong("full_attention_interval", "at least 1");
  KVANT_TRY(ReadAttentionLayers(config, names, interval, shape));
  KVANT_ASSIGN(shape.conv_taps, config.Count("linear_conv_kernel_dim", kConvTapsMax));
  if (shape.conv_taps < 2) return config.Wrong("linear_conv_kernel_dim", "at least 2");
  HfDelta& delta = shape.delta;
  KVANT_ASSIGN(delta.key_heads, config.Count("linear_num_key_heads", kHeadsMax));
  KVANT_ASSIGN(delta.value_heads, config.Count("linear_num_value_heads", kHeadsMax));
  KVANT_ASSIGN(delta.key_dim, config.Count("linear_key_head_dim", kHeadDimMax));
  KVANT_ASSIGN(delta.value_dim, config.Count("linear_value_head_dim", kHeadDimMax));
  if (delta.value_heads % delta.key_heads == 0) return {};
  return config.Wrong("linear_num_value_heads", fmt::format("a multiple of {}", delta.key_heads));
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

namespace {

Status AddDeltaSizes(const JsonObject& config, const HfShape& shape, Parameters& out) {
  const auto add = [&](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  add("ssm.conv_kernel", shape.conv_taps);
  add("ssm.group_count", shape.delta.key_heads);
  add("ssm.time_step_rank", shape.delta.value_heads);
  add("ssm.state_size", shape.delta.key_dim);
  add("ssm.inner_size", shape.delta.values());
  // Other engines know layers of attention as every n-th only.
  const std::vector<bool>& attention = shape.attention_layers;
  for (int64_t interval = 1; interval <= shape.layers; ++interval) {
    if (!FollowsPattern(attention, interval)) continue;
    add("full_attention_interval", interval);
    return {};
  }
  return MakeError(ErrorCode::kNotSupported,
                   "{}: expected full_attention in every n-th layer and linear_attention in the "
                   "others",
                   config.Where("layer_types"));
}

}  // namespace

Status AddRopeSections(const RopeSettings& rope, std::vector<int32_t> sections, Parameters& out,
                       std::string_view name) {
  constexpr size_t kSections = 4;
  sections.resize(kSections);
  KVANT_ASSIGN(const auto given, rope.Numbers(name));
  if (given && given->size() != kSections - 1 && given->size() != kSections) {
    return rope.Wrong(name, fmt::format("{} or {} numbers", kSections - 1, kSections));
  }
  for (size_t i = 0; given && i < given->size(); ++i) {
    if (!((*given)[i] >= 0 && (*given)[i] <= static_cast<float>(kHeadDimMax))) {
      return rope.Wrong(name, fmt::format("numbers from 0 to {}", kHeadDimMax));
    }
    sections[i] = static_cast<int32_t>((*given)[i]);
  }
  out.writer->AddI32s(out.Key("rope.dimension_sections"), sections);
  return {};
}

Status AddDeltaParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseTrue(config, "attention_bias"));
  KVANT_TRY(AddDeltaSizes(config, shape, out));
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));
  return AddRopeScaling(config, shape, n_rot, out);
}

Status AddSectionedDelta(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddDeltaParameters(config, shape, out));
  KVANT_ASSIGN(const RopeSettings rope, RopeSettings::Read(config));
  return AddRopeSections(rope, {11, 11, 10}, out);
}

Status ReadMamba(const JsonObject& config, const HfMambaKeys& keys, HfShape& shape) {
  HfMamba& mamba = shape.mamba;
  KVANT_ASSIGN(mamba.heads, config.Count(keys.heads, kHeadsMax));
  if (!keys.head_dim.empty()) {
    KVANT_ASSIGN(mamba.head_dim, config.Count(keys.head_dim, kHeadDimMax));
  }
  KVANT_ASSIGN(mamba.state_dim, config.Count(keys.state_dim, kHeadDimMax));
  KVANT_ASSIGN(mamba.groups, config.Count(keys.groups, kHeadsMax));
  KVANT_ASSIGN(shape.conv_taps, config.Count(keys.taps, kConvTapsMax));
  if (shape.conv_taps < 2) return config.Wrong(keys.taps, "at least 2");
  if (mamba.heads % mamba.groups != 0) {
    return config.Wrong(keys.groups, fmt::format("a divisor of {}", mamba.heads));
  }
  return {};
}

Status AddMamba(const JsonObject& config, const HfShape& shape, Parameters& out) {
  const auto add = [&](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  add("ssm.conv_kernel", shape.conv_taps);
  add("ssm.inner_size", shape.mamba.inner());
  add("ssm.state_size", shape.mamba.state_dim);
  add("ssm.time_step_rank", shape.mamba.heads);
  add("ssm.group_count", shape.mamba.groups);
  // A limit that limits nothing is (0, Infinity); some folders have a large number for the latter.
  constexpr double kNoLimit = 1e30;
  const formats::Json* limit = config.Find("time_step_limit");
  if (limit == nullptr) return {};
  const bool is_pair = limit->is_array() && limit->size() == 2 && (*limit)[1].is_number();
  if (is_pair && (*limit)[0] == 0 && (*limit)[1] > kNoLimit) return {};
  return MakeError(ErrorCode::kNotSupported, "{}: expected 0 and Infinity",
                   config.Where("time_step_limit"));
}

}  // namespace kvant::arch
