#include "engine/arch/hf/hf_indexer.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/arch/hf/hf_latent.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/limits.h"

namespace kvant::arch {
namespace {

using formats::Json;

constexpr int64_t kIndexMax = 1 << 20;  // positions or blocks that an indexer chooses

Status ReadTypes(const JsonObject& config, const Json& types, HfShape& shape) {
  const bool fits = types.is_array() && std::ssize(types) >= shape.layers &&
                    std::ranges::all_of(
                        types, [](const Json& type) { return type == "full" || type == "shared"; });
  if (!fits) {
    return config.Wrong("indexer_types",
                        fmt::format("\"full\" or \"shared\" for each of {} layers", shape.layers));
  }
  // Entries behind those of the layers are of layers that predict further tokens.
  for (int64_t i = 0; i < shape.layers; ++i) {
    shape.index_layers.push_back(types[static_cast<size_t>(i)] == "full");
  }
  return {};
}

Status ReadPattern(const JsonObject& config, const std::string& pattern, HfShape& shape) {
  const bool fits =
      std::ssize(pattern) >= shape.layers && pattern.find_first_not_of("FS") == std::string::npos;
  if (!fits) {
    return config.Wrong("index_topk_pattern",
                        fmt::format("a letter F or S for each of {} layers", shape.layers));
  }
  for (int64_t i = 0; i < shape.layers; ++i) {
    shape.index_layers.push_back(pattern[static_cast<size_t>(i)] == 'F');
  }
  return {};
}

}  // namespace

Status FinishIndexShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(shape.index_heads, config.Count("index_n_heads", kHeadsMax));
  KVANT_ASSIGN(shape.index_dim, config.Count("index_head_dim", kHeadDimMax));
  return {};
}

Status ReadIndexLayers(const JsonObject& config, HfShape& shape) {
  const Json* types = config.Find("indexer_types");
  const Json* pattern = config.Find("index_topk_pattern");
  if (types != nullptr && !types->is_null()) {
    KVANT_TRY(ReadTypes(config, *types, shape));
  } else if (pattern != nullptr && pattern->is_string()) {
    KVANT_TRY(ReadPattern(config, pattern->get<std::string>(), shape));
  } else {
    KVANT_ASSIGN(const auto every, config.Integer("index_topk_freq", kLayersMax));
    KVANT_ASSIGN(const auto offset, config.Integer("index_skip_topk_offset", kLayersMax));
    for (int64_t i = 0; i < shape.layers; ++i) {
      const int64_t past = std::max<int64_t>(0, i - offset.value_or(2) + 1);
      shape.index_layers.push_back(past % std::max<int64_t>(1, every.value_or(1)) == 0);
    }
  }
  if (shape.index_layers.front()) return {};
  return config.Wrong("indexer_types", "\"full\" for the first layer");
}

void AddIndexSizes(const HfShape& shape, int64_t most, Parameters& out) {
  const auto add = [&out](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  add("attention.indexer.head_count", shape.index_heads);
  add("attention.indexer.key_length", shape.index_dim);
  add("attention.indexer.top_k", most);
}

Status AddIndexParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const int64_t most, config.Count("index_topk", kIndexMax));
  AddIndexSizes(shape, most, out);
  return {};
}

Status AddIndexedLatents(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto interleaved, config.Bool("rope_interleave"));
  if (!interleaved.value_or(true)) {
    return MakeError(ErrorCode::kNotSupported, "{}: false is not supported",
                     config.Where("rope_interleave"));
  }
  AddLatentSizes(shape, HfLatentKv::kOfHeads, out);
  KVANT_ASSIGN(const auto first, config.Integer("first_k_dense_replace", kLayersMax));
  KVANT_ASSIGN(const int64_t dense, CountLeadingDense(config, shape.layers, first.value_or(0)));
  AddSigmoidGating(dense, out);
  KVANT_TRY(AddLatentRopeScaling(config, shape, out));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kAsTheyAre, out));
  KVANT_TRY(AddExpertGroups(config, out));
  return AddIndexParameters(config, shape, out);
}

}  // namespace kvant::arch
