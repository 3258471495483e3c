// Attentions from the metadata of a file.
#include "engine/arch/sublayers/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/result.h"
#include "engine/arch/spec.h"

namespace kvant::arch {
namespace {

Status CheckHeads(const Metadata& metadata, size_t layer, int64_t heads, int64_t kv_heads) {
  if (heads % kv_heads == 0) return {};
  return MakeError(ErrorCode::kCorrupt, "{}: layer {}: {} heads are no multiple of {} kv heads",
                   metadata.file().path(), layer, heads, kv_heads);
}

// The head size of keys or values, where the metadata do not give one.
Result<int64_t> HeadSize(const Metadata& metadata, size_t layer, int64_t dim, int64_t heads) {
  if (dim % heads == 0 && dim / heads <= int64_t{kHeadDimMax}) return dim / heads;
  return MakeError(ErrorCode::kCorrupt,
                   "{}: layer {}: dimension {} cannot be divided into {} heads",
                   metadata.file().path(), layer, dim, heads);
}

// Heads and kv heads of each layer; both are 0 in layers without attention.
struct HeadCounts {
  std::vector<int64_t> heads;
  std::vector<int64_t> kv_heads;
};

Result<std::vector<Attention>> ReadWithHeads(const Metadata& metadata, const Stack& stack,
                                             const HeadCounts& counts) {
  const size_t layers = stack.layers.size();
  const auto& [heads, kv_heads] = counts;
  KVANT_ASSIGN(const int64_t window, metadata.CountOr("attention.sliding_window", kContextMax, 0));
  KVANT_ASSIGN(const int64_t k_dim, metadata.CountOr("attention.key_length", kHeadDimMax, 0));
  KVANT_ASSIGN(const int64_t v_dim, metadata.CountOr("attention.value_length", kHeadDimMax, 0));
  KVANT_ASSIGN(const float scale, metadata.PositiveOr("attention.scale", 0));
  std::vector<Attention> attentions(layers);
  for (size_t i = 0; i < layers; ++i) {
    if (kv_heads[i] == 0) continue;
    KVANT_TRY(CheckHeads(metadata, i, heads[i], kv_heads[i]));
    Attention& attention = attentions[i];
    attention.heads = heads[i];
    attention.kv_heads = kv_heads[i];
    int64_t head_size = 0;
    if (k_dim == 0 || v_dim == 0) {
      KVANT_ASSIGN(head_size, HeadSize(metadata, i, stack.dim, heads[i]));
    }
    attention.k_dim = k_dim != 0 ? k_dim : head_size;
    attention.v_dim = v_dim != 0 ? v_dim : head_size;
    attention.scale = scale > 0 ? scale : 1.0f / std::sqrt(static_cast<float>(attention.k_dim));
    attention.head_norm_epsilon = stack.final_norm.epsilon;
    if (window > 0) attention.mask = {MaskKind::kWindow, window};
  }
  return attentions;
}

}  // namespace

Status ReadResultGates(const Metadata& metadata, const Stack& stack, cpu::Activation activation,
                       std::vector<Attention>& attentions) {
  for (size_t i = 0; i < attentions.size(); ++i) {
    Attention& attention = attentions[i];
    const std::string name = fmt::format("{}.{}.attn_gate.weight", stack.layer_prefix, i);
    const formats::GgufTensor* tensor = metadata.file().FindTensor(name);
    if (tensor == nullptr) {
      return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing", metadata.file().path(),
                       name);
    }
    const int64_t values = attention.heads * attention.v_dim;
    const auto rows = static_cast<int64_t>(tensor->dims[1]);
    if (rows != values && rows != attention.heads) {
      return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected {} or {} rows, found {}",
                       metadata.file().path(), name, attention.heads, values, rows);
    }
    attention.gate = ResultGate{activation, rows != values};
  }
  return {};
}

Result<std::vector<Attention>> ReadAttentions(const Metadata& metadata, const Stack& stack) {
  const size_t layers = stack.layers.size();
  HeadCounts counts;
  KVANT_ASSIGN(counts.heads, metadata.CountPerLayer("attention.head_count", layers, kHeadsMax, {}));
  KVANT_ASSIGN(counts.kv_heads,
               metadata.CountPerLayer("attention.head_count_kv", layers, kHeadsMax, counts.heads));
  return ReadWithHeads(metadata, stack, counts);
}

namespace {

// Heads of the layers, some of which may have none.
Result<HeadCounts> ReadSomeHeads(const Metadata& metadata, size_t layers) {
  HeadCounts counts;
  KVANT_ASSIGN(counts.heads,
               metadata.CountOrNonePerLayer("attention.head_count", layers, kHeadsMax));
  KVANT_ASSIGN(counts.kv_heads,
               metadata.CountOrNonePerLayer("attention.head_count_kv", layers, kHeadsMax));
  return counts;
}

// The attentions of the layers that have kv heads.
Result<std::vector<std::optional<Attention>>> ReadWithSomeHeads(const Metadata& metadata,
                                                                const Stack& stack,
                                                                const HeadCounts& counts) {
  const size_t layers = stack.layers.size();
  for (size_t i = 0; i < layers; ++i) {
    if (counts.kv_heads[i] == 0 || counts.heads[i] > 0) continue;
    return MakeError(ErrorCode::kCorrupt, "{}: layer {}: {} kv heads, but no heads",
                     metadata.file().path(), i, counts.kv_heads[i]);
  }
  if (std::ranges::all_of(counts.kv_heads, [](int64_t count) { return count == 0; })) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected kv heads in some layer, found none",
                     metadata.file().path(), metadata.Key("attention.head_count_kv"));
  }
  KVANT_ASSIGN(const auto all, ReadWithHeads(metadata, stack, counts));
  std::vector<std::optional<Attention>> some(layers);
  for (size_t i = 0; i < layers; ++i) {
    if (counts.kv_heads[i] > 0) some[i] = all[i];
  }
  return some;
}

}  // namespace

Result<std::vector<std::optional<Attention>>> ReadSomeAttentions(const Metadata& metadata,
                                                                 const Stack& stack) {
  KVANT_ASSIGN(const HeadCounts counts, ReadSomeHeads(metadata, stack.layers.size()));
  return ReadWithSomeHeads(metadata, stack, counts);
}

Result<std::vector<std::optional<Attention>>> ReadSomeAttentions(const Metadata& metadata,
                                                                 const Stack& stack,
                                                                 const std::vector<bool>& chosen) {
  KVANT_ASSIGN(HeadCounts counts, ReadSomeHeads(metadata, stack.layers.size()));
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] && counts.kv_heads[i] == 0) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: key {}: expected kv heads in layer {}, which has attention, found none",
                       metadata.file().path(), metadata.Key("attention.head_count_kv"), i);
    }
    if (!chosen[i]) counts.kv_heads[i] = 0;
  }
  return ReadWithSomeHeads(metadata, stack, counts);
}

std::vector<float> AlibiSlopes(int64_t heads, float max_bias) {
  const int64_t below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  const auto slope = [max_bias](int64_t number, int64_t count) {
    return static_cast<float>(std::exp2(-static_cast<double>(max_bias) *
                                        static_cast<double>(number) / static_cast<double>(count)));
  };
  std::vector<float> slopes;
  for (int64_t t = 1; t <= below; ++t) slopes.push_back(slope(t, below));
  for (int64_t t = 1; t <= heads - below; ++t) slopes.push_back(slope(2 * t - 1, 2 * below));
  return slopes;
}

Result<float> ReadMaxAlibiBias(const Metadata& metadata, float otherwise) {
  constexpr const char* kKey = "attention.max_alibi_bias";
  KVANT_ASSIGN(const auto given, metadata.file().GetF32(metadata.Key(kKey)));
  if (given == 0.0f) return 0.0f;
  return metadata.PositiveOr(kKey, otherwise);
}

Result<graph::QueryTemperature> ReadTemperature(const Metadata& metadata, const char* length_key) {
  graph::QueryTemperature temperature;
  KVANT_ASSIGN(const auto given, metadata.file().GetF32(metadata.Key(kTemperatureScaleKey)));
  if (given.value_or(0) == 0) return temperature;
  KVANT_ASSIGN(temperature.scale, metadata.Positive(kTemperatureScaleKey));
  KVANT_ASSIGN(const int64_t length, metadata.Count(length_key, kContextMax));
  temperature.length = static_cast<float>(length);
  return temperature;
}

void ScaleByWidth(const Metadata& metadata, size_t layers, int64_t dim,
                  std::vector<Attention>& attentions) {
  if (attentions.size() != layers || metadata.Has("attention.scale")) return;
  const auto heads = static_cast<float>(attentions.front().heads);
  for (Attention& attention : attentions) {
    attention.scale = 1.0f / std::sqrt(static_cast<float>(dim) / heads);
  }
}

Status ShareKeys(const Metadata& metadata, const std::vector<bool>& windows,
                 std::vector<Attention>& attentions) {
  constexpr const char* kKey = "attention.shared_kv_layers";
  KVANT_ASSIGN(const int64_t count, metadata.CountOr(kKey, kLayersMax, 0));
  const int64_t own = std::ssize(attentions) - count;
  for (size_t i = attentions.size() - static_cast<size_t>(std::min(count, std::ssize(attentions)));
       i < attentions.size(); ++i) {
    int64_t source = own - 1;
    while (source >= 0 && windows[static_cast<size_t>(source)] != windows[i]) --source;
    if (source < 0) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: key {}: {} of {} layers leave none whose keys layer {} may read, "
                       "expected one that has a window if it has one",
                       metadata.file().path(), metadata.Key(kKey), count, attentions.size(), i);
    }
    const Attention& keys = attentions[static_cast<size_t>(source)];
    attentions[i].keys_of = static_cast<size_t>(source);
    attentions[i].kv_heads = keys.kv_heads;
    attentions[i].values_are_keys = attentions[i].norm_values = false;
    KVANT_TRY(CheckHeads(metadata, i, attentions[i].heads, keys.kv_heads));
  }
  return {};
}

Result<std::vector<bool>> ReadWindowPattern(const Metadata& metadata, size_t layers,
                                            uint32_t otherwise, FullLayer full) {
  constexpr const char* kKey = "attention.sliding_window_pattern";
  KVANT_ASSIGN(auto flags, metadata.FlagPerLayer(kKey, layers));
  if (flags.has_value()) return std::move(*flags);
  KVANT_ASSIGN(const auto number, metadata.file().GetU32(metadata.Key(kKey)));
  if (number == 0u) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected at least 1, found 0",
                     metadata.file().path(), metadata.Key(kKey));
  }
  const uint32_t pattern = number.value_or(otherwise);
  std::vector<bool> windows(layers);
  const size_t shift = full == FullLayer::kLast ? 1 : 0;
  for (size_t i = 0; i < layers; ++i) windows[i] = (i + shift) % pattern != 0;
  return windows;
}

Status KeepWindows(const Metadata& metadata, const std::vector<bool>& windows,
                   std::vector<Attention>& attentions) {
  for (size_t i = 0; i < attentions.size(); ++i) {
    if (!windows[i]) attentions[i].mask = {};
    if (windows[i] && attentions[i].mask.window == 0) {
      return metadata.Missing("attention.sliding_window");
    }
  }
  return {};
}

}  // namespace kvant::arch
