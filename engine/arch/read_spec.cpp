// From metadata to ArchSpec, with every number checked before it is used.
#include <cmath>
#include <cstring>
#include <optional>

#include "engine/arch/arch_spec.h"

namespace kvant::arch {
namespace {

// Limits that no real model comes near; they keep products of dimensions far from overflow.
constexpr uint32_t kLayersMax = 4096;
constexpr uint32_t kDimMax = 1u << 20;
constexpr uint32_t kHeadsMax = 1u << 16;
constexpr uint32_t kContextMax = 1u << 30;
constexpr int64_t kHeadDimMax = 4096;

class SpecReader {
 public:
  SpecReader(const formats::GgufFile& file, std::string_view arch) : file_(file), arch_(arch) {}

  std::string Key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }

  // A required number in [1, max].
  Result<int64_t> Count(std::string_view name, uint32_t max) const {
    KVANT_ASSIGN(const int64_t value, CountOr(name, max, 0));
    if (value == 0)
      return MakeError(ErrorCode::kCorrupt, "{}: key {} is missing", file_.path(), Key(name));
    return value;
  }

  // An optional number in [1, max]; 0 counts as absent where that is the default.
  Result<int64_t> CountOr(std::string_view name, uint32_t max, int64_t otherwise) const {
    KVANT_ASSIGN(const std::optional<uint32_t> value, file_.GetU32(Key(name)));
    if (!value.has_value() || (*value == 0 && otherwise == 0)) return otherwise;
    KVANT_TRY(CheckRange(name, *value, max));
    return int64_t{*value};
  }

  // One number for all layers, or an array with one per layer.
  Result<std::vector<int64_t>> PerLayer(std::string_view name, int64_t layers, uint32_t max,
                                        std::vector<int64_t> otherwise) const {
    const std::string key = Key(name);
    const formats::GgufValue* value = file_.Find(key);
    if (value == nullptr) {
      if (otherwise.empty())
        return MakeError(ErrorCode::kCorrupt, "{}: key {} is missing", file_.path(), key);
      return otherwise;
    }
    if (value->type != formats::GgufType::kArray) {
      KVANT_ASSIGN(const int64_t number, Count(name, max));
      return std::vector<int64_t>(static_cast<size_t>(layers), number);
    }
    const auto& array = std::get<formats::GgufArray>(value->value);
    const bool integers =
        array.type == formats::GgufType::kInt32 || array.type == formats::GgufType::kUint32;
    if (!integers || array.count != static_cast<uint64_t>(layers)) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: key {}: expected {} 32-bit integers, found {} of {}", file_.path(), key,
                       layers, array.count, formats::GgufTypeName(array.type));
    }
    std::vector<int64_t> numbers;
    for (uint64_t i = 0; i < array.count; ++i) {
      uint32_t number = 0;
      std::memcpy(&number, array.data + i * sizeof number, sizeof number);
      KVANT_TRY(CheckRange(name, number, max));
      numbers.push_back(number);
    }
    return numbers;
  }

  // An optional positive finite number.
  Result<float> PositiveOr(std::string_view name, float otherwise) const {
    KVANT_ASSIGN(const std::optional<float> value, file_.GetF32(Key(name)));
    if (!value.has_value()) return otherwise;
    if (!std::isfinite(*value) || *value <= 0) {
      return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected a positive number, found {}",
                       file_.path(), Key(name), *value);
    }
    return *value;
  }

  Status CheckRange(std::string_view name, uint32_t value, uint32_t max) const {
    if (value >= 1 && value <= max) return {};
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected 1 to {}, found {}", file_.path(),
                     Key(name), max, value);
  }

 private:
  const formats::GgufFile& file_;
  std::string arch_;
};

Result<std::vector<float>> ReadFactors(const formats::GgufFile& file, const char* name,
                                       int64_t n_rot) {
  const formats::GgufTensor* tensor = file.FindTensor(name);
  if (tensor == nullptr) return std::vector<float>();
  if (tensor->format->quantized() || tensor->n_values() != n_rot / 2) {
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected {} float values, found {} of {}",
                     file.path(), name, n_rot / 2, tensor->n_values(), tensor->format->name);
  }
  std::vector<float> factors(static_cast<size_t>(n_rot / 2));
  tensor->format->decode(tensor->data, factors.data(), n_rot / 2);
  for (const float factor : factors) {
    if (!std::isfinite(factor) || factor <= 0) {
      return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected positive factors, found {}",
                       file.path(), name, factor);
    }
  }
  return factors;
}

Result<RopeSpec> ReadRope(const formats::GgufFile& file, const SpecReader& reader,
                          const ArchFamily& family, int64_t k_dim, int64_t context_train) {
  RopeSpec rope;
  rope.style = family.rope_style;
  KVANT_ASSIGN(rope.n_rot, reader.CountOr("rope.dimension_count", kDimMax, k_dim));
  if (rope.n_rot > k_dim || rope.n_rot % 2 != 0) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: key {}: expected an even number up to the head size {}, found {}",
                     file.path(), reader.Key("rope.dimension_count"), k_dim, rope.n_rot);
  }
  KVANT_ASSIGN(rope.base, reader.PositiveOr("rope.freq_base", rope.base));
  KVANT_ASSIGN(rope.linear_factor, reader.PositiveOr("rope.scale_linear", 1.0f));
  KVANT_ASSIGN(const auto type, file.GetString(reader.Key("rope.scaling.type")));
  const std::string_view scaling = type.value_or("none");
  if (scaling == "linear") {
    KVANT_ASSIGN(rope.linear_factor, reader.PositiveOr("rope.scaling.factor", rope.linear_factor));
  } else if (scaling != "none" && scaling != "longrope" && scaling != "llama3") {
    return MakeError(
        ErrorCode::kNotSupported,
        "{}: key {}: RoPE scaling \"{}\" is not supported (known: none, linear, llama3, longrope)",
        file.path(), reader.Key("rope.scaling.type"), scaling);
  }
  KVANT_ASSIGN(rope.original_context,
               reader.CountOr("rope.scaling.original_context_length", kContextMax, context_train));
  KVANT_ASSIGN(rope.amplitude, reader.PositiveOr("rope.scaling.attn_factor", 1.0f));
  KVANT_ASSIGN(rope.factors, ReadFactors(file, "rope_freqs.weight", rope.n_rot));
  if (rope.factors.empty()) {
    KVANT_ASSIGN(rope.factors, ReadFactors(file, "rope_factors_short.weight", rope.n_rot));
    KVANT_ASSIGN(rope.factors_long, ReadFactors(file, "rope_factors_long.weight", rope.n_rot));
  }
  return rope;
}

Status ReadLayers(const formats::GgufFile& file, const SpecReader& reader, ArchSpec& spec) {
  KVANT_ASSIGN(const int64_t count, reader.Count("block_count", kLayersMax));
  KVANT_ASSIGN(const auto heads, reader.PerLayer("attention.head_count", count, kHeadsMax, {}));
  KVANT_ASSIGN(const auto kv_heads,
               reader.PerLayer("attention.head_count_kv", count, kHeadsMax, heads));
  KVANT_ASSIGN(const auto ffn, reader.PerLayer("feed_forward_length", count, kDimMax, {}));
  KVANT_ASSIGN(const int64_t window, reader.CountOr("attention.sliding_window", kContextMax, 0));
  KVANT_ASSIGN(const int64_t k_dim, reader.CountOr("attention.key_length", kHeadDimMax, 0));
  KVANT_ASSIGN(const int64_t v_dim, reader.CountOr("attention.value_length", kHeadDimMax, 0));
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    if (heads[i] % kv_heads[i] != 0) {
      return MakeError(ErrorCode::kCorrupt, "{}: layer {}: {} heads are no multiple of {} kv heads",
                       file.path(), i, heads[i], kv_heads[i]);
    }
    if ((k_dim == 0 || v_dim == 0) &&
        (spec.dim % heads[i] != 0 || spec.dim / heads[i] > kHeadDimMax)) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: layer {}: dimension {} cannot be divided into {} heads", file.path(), i,
                       spec.dim, heads[i]);
    }
    const int64_t head_dim = spec.dim / heads[i];
    spec.layers.push_back({heads[i], kv_heads[i], k_dim != 0 ? k_dim : head_dim,
                           v_dim != 0 ? v_dim : head_dim, ffn[i], window, 0});
  }
  return {};
}

// Every layer has the same key size in the families known today; the RoPE table relies on it.
Status CheckUniformKeys(const formats::GgufFile& file, const ArchSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (layer.k_dim != spec.layers.front().k_dim) {
      return MakeError(ErrorCode::kNotSupported, "{}: layers with different head sizes ({} and {})",
                       file.path(), spec.layers.front().k_dim, layer.k_dim);
    }
  }
  return {};
}

}  // namespace

Result<ArchSpec> ReadSpec(const formats::GgufFile& file) {
  KVANT_ASSIGN(const auto name, file.GetString("general.architecture"));
  if (!name.has_value()) {
    return MakeError(ErrorCode::kCorrupt, "{}: key general.architecture is missing", file.path());
  }
  ArchSpec spec;
  std::string known;
  for (const ArchFamily* family : AllFamilies()) {
    if (family->name == *name) spec.family = family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family->name);
  }
  if (spec.family == nullptr) {
    return MakeError(ErrorCode::kNotSupported, "{}: unknown architecture \"{}\" (known: {})",
                     file.path(), *name, known);
  }

  const SpecReader reader(file, *name);
  KVANT_ASSIGN(const int64_t experts, reader.CountOr("expert_count", kDimMax, 0));
  if (experts > 0) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: mixture of experts ({} experts) is not supported", file.path(), experts);
  }
  KVANT_ASSIGN(spec.dim, reader.Count("embedding_length", kDimMax));
  KVANT_ASSIGN(spec.context_train, reader.Count("context_length", kContextMax));
  KVANT_ASSIGN(spec.norm_epsilon, reader.PositiveOr("attention.layer_norm_rms_epsilon", 0));
  if (spec.norm_epsilon == 0) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {} is missing", file.path(),
                     reader.Key("attention.layer_norm_rms_epsilon"));
  }
  KVANT_TRY(ReadLayers(file, reader, spec));
  KVANT_TRY(CheckUniformKeys(file, spec));
  KVANT_ASSIGN(spec.attention_scale, reader.PositiveOr("attention.scale", 0));
  KVANT_ASSIGN(RopeSpec rope,
               ReadRope(file, reader, *spec.family, spec.layers.front().k_dim, spec.context_train));
  spec.ropes.push_back(std::move(rope));
  if (spec.family->adjust != nullptr) KVANT_TRY(spec.family->adjust(file, spec));
  return spec;
}

}  // namespace kvant::arch
